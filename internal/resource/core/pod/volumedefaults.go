package pod

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/resource/core/volume"
	"github.com/coracle-io/coracle/internal/resource/defaults"
)

// defaultFileMode are the permission bits of files that volumes create from
// API objects.
const defaultFileMode int32 = 0o644

// defaultTokenSeconds is the lifetime of a projected service account token.
const defaultTokenSeconds int64 = 60 * 60

// defaultVolume sets the defaults of a volume. A volume without a source
// becomes an emptyDir.
func defaultVolume(v *corev1.VolumeSource) {
	if *v == (corev1.VolumeSource{}) {
		v.EmptyDir = &corev1.EmptyDirVolumeSource{}
	}
	if v.Secret != nil {
		defaults.Nil(&v.Secret.DefaultMode, defaultFileMode)
	}
	if v.ConfigMap != nil {
		defaults.Nil(&v.ConfigMap.DefaultMode, defaultFileMode)
	}
	if v.DownwardAPI != nil {
		defaults.Nil(&v.DownwardAPI.DefaultMode, defaultFileMode)
		for i := range v.DownwardAPI.Items {
			defaultFieldRef(v.DownwardAPI.Items[i].FieldRef)
		}
	}
	if v.Projected != nil {
		defaultProjection(v.Projected)
	}
	if v.HostPath != nil {
		defaults.Nil(&v.HostPath.Type, corev1.HostPathUnset)
	}
	if v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate != nil {
		volume.DefaultClaimSpec(&v.Ephemeral.VolumeClaimTemplate.Spec)
	}
	if v.Image != nil {
		defaults.Zero(&v.Image.PullPolicy, pullPolicyOf(v.Image.Reference))
	}
	if v.ISCSI != nil {
		defaults.Zero(&v.ISCSI.ISCSIInterface, "default")
	}
	if v.RBD != nil {
		defaults.Zero(&v.RBD.RBDPool, "rbd")
		defaults.Zero(&v.RBD.RadosUser, "admin")
		defaults.Zero(&v.RBD.Keyring, "/etc/ceph/keyring")
	}
	if v.AzureDisk != nil {
		volume.DefaultAzureDisk(v.AzureDisk)
	}
	if v.ScaleIO != nil {
		defaults.Zero(&v.ScaleIO.StorageMode, "ThinProvisioned")
		defaults.Zero(&v.ScaleIO.FSType, "xfs")
	}
}

func defaultProjection(p *corev1.ProjectedVolumeSource) {
	defaults.Nil(&p.DefaultMode, defaultFileMode)
	for i := range p.Sources {
		if token := p.Sources[i].ServiceAccountToken; token != nil {
			defaults.Nil(&token.ExpirationSeconds, defaultTokenSeconds)
		}
		if downward := p.Sources[i].DownwardAPI; downward != nil {
			for j := range downward.Items {
				defaultFieldRef(downward.Items[j].FieldRef)
			}
		}
		if certificate := p.Sources[i].PodCertificate; certificate != nil {
			defaults.Nil(&certificate.MaxExpirationSeconds, 24*60*60)
		}
	}
}
