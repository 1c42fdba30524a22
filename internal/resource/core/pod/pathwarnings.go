package pod

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// A volumeFile is a file that a volume creates. source is the kind of its
// content, or "" if the volume has only one kind.
type volumeFile struct{ path, source string }

func (f volumeFile) String() string {
	if f.source == "" {
		return fmt.Sprintf("%q", f.path)
	}
	return fmt.Sprintf("%q (%s)", f.path, f.source)
}

// maxPairs and maxWarnings limit the search for files and ports that collide.
// A pod can have a hundred thousand, and each is compared with all before it.
// No client gets more than a few KiB of warnings.
const (
	maxPairs    = 1 << 20
	maxWarnings = 4096
)

// pathWarnings warns of files that volumes create at the same path.
func pathWarnings(volumes []corev1.Volume) []string {
	var warnings []string
	pairs := 0
	for i := range volumes {
		v := &volumes[i]
		overlap := func(what string, files []volumeFile) {
			for j := range files {
				if pairs += j; pairs > maxPairs || len(warnings) > maxWarnings {
					return
				}
				for _, other := range files[:j] {
					if overlaps(files[j], other) {
						warnings = append(warnings, fmt.Sprintf("volume %q (%s): overlapping paths: %s with %s", v.Name, what, files[j], other))
					}
				}
			}
		}
		switch {
		case v.ConfigMap != nil:
			overlap(fmt.Sprintf("ConfigMap %q", v.ConfigMap.Name), filesOfKeys(v.ConfigMap.Items, ""))
		case v.Secret != nil:
			overlap(fmt.Sprintf("Secret %q", v.Secret.SecretName), filesOfKeys(v.Secret.Items, ""))
		case v.DownwardAPI != nil:
			overlap("DownwardAPI", filesOfFields(v.DownwardAPI.Items, ""))
		case v.Projected != nil:
			var files []volumeFile
			for j := range v.Projected.Sources {
				source := &v.Projected.Sources[j]
				if *source == (corev1.VolumeProjection{}) {
					warnings = append(warnings, fmt.Sprintf("volume %q (Projected) has no sources provided", v.Name))
				}
				files = append(files, filesOfProjection(source)...)
			}
			overlap("Projected", files)
		}
	}
	return warnings
}

// overlaps reports whether the paths of a and b are the same, or one contains
// the other.
func overlaps(a, b volumeFile) bool {
	if a.path == "" || b.path == "" {
		return false
	}
	if len(a.path) > len(b.path) {
		a, b = b, a
	}
	return strings.HasPrefix(b.path, a.path) && (len(a.path) == len(b.path) || b.path[len(a.path)] == '/')
}

func fileAt(path, source string) volumeFile {
	return volumeFile{strings.TrimRight(path, "/"), source}
}

func filesOfKeys(items []corev1.KeyToPath, source string) []volumeFile {
	files := make([]volumeFile, len(items))
	for i := range items {
		files[i] = fileAt(items[i].Path, source)
	}
	return files
}

func filesOfFields(items []corev1.DownwardAPIVolumeFile, source string) []volumeFile {
	files := make([]volumeFile, len(items))
	for i := range items {
		files[i] = fileAt(items[i].Path, source)
	}
	return files
}

func filesOfProjection(p *corev1.VolumeProjection) []volumeFile {
	switch {
	case p.ConfigMap != nil:
		return filesOfKeys(p.ConfigMap.Items, fmt.Sprintf("ConfigMap %q", p.ConfigMap.Name))
	case p.Secret != nil:
		return filesOfKeys(p.Secret.Items, fmt.Sprintf("Secret %q", p.Secret.Name))
	case p.DownwardAPI != nil:
		return filesOfFields(p.DownwardAPI.Items, "DownwardAPI")
	case p.ServiceAccountToken != nil:
		return []volumeFile{fileAt(p.ServiceAccountToken.Path, "ServiceAccountToken")}
	case p.ClusterTrustBundle != nil:
		name := ptr.Deref(p.ClusterTrustBundle.Name, ptr.Deref(p.ClusterTrustBundle.SignerName, ""))
		return []volumeFile{fileAt(p.ClusterTrustBundle.Path, fmt.Sprintf("ClusterTrustBundle %q", name))}
	case p.PodCertificate != nil:
		return []volumeFile{
			fileAt(p.PodCertificate.CertificateChainPath, "PodCertificate chain"),
			fileAt(p.PodCertificate.KeyPath, "PodCertificate key"),
			fileAt(p.PodCertificate.CredentialBundlePath, "PodCertificate credential bundle"),
		}
	}
	return nil
}
