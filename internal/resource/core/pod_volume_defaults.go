package core

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/coracle-io/coracle/internal/resource/fill"
)

// Permission bits of files that volumes make from API objects.
const defaultFileMode int32 = 0o644

// The lifetime of a projected service account token in seconds.
const defaultTokenSeconds int64 = 60 * 60

// defaultVolume makes a volume without a source an emptyDir and fills in what
// its source leaves out.
func defaultVolume(v *corev1.VolumeSource) {
	if *v == (corev1.VolumeSource{}) {
		v.EmptyDir = &corev1.EmptyDirVolumeSource{}
	}
	if v.Secret != nil {
		fill.Nil(&v.Secret.DefaultMode, defaultFileMode)
	}
	if v.ConfigMap != nil {
		fill.Nil(&v.ConfigMap.DefaultMode, defaultFileMode)
	}
	if v.DownwardAPI != nil {
		fill.Nil(&v.DownwardAPI.DefaultMode, defaultFileMode)
		for i := range v.DownwardAPI.Items {
			defaultFieldRef(v.DownwardAPI.Items[i].FieldRef)
		}
	}
	if v.Projected != nil {
		defaultProjection(v.Projected)
	}
	if v.HostPath != nil {
		fill.Nil(&v.HostPath.Type, corev1.HostPathUnset)
	}
	if v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate != nil {
		DefaultPersistentVolumeClaimSpec(&v.Ephemeral.VolumeClaimTemplate.Spec)
	}
	if v.Image != nil {
		fill.Zero(&v.Image.PullPolicy, pullPolicyOf(v.Image.Reference))
	}
	if v.ISCSI != nil {
		fill.Zero(&v.ISCSI.ISCSIInterface, "default")
	}
	if v.RBD != nil {
		fill.Zero(&v.RBD.RBDPool, "rbd")
		fill.Zero(&v.RBD.RadosUser, "admin")
		fill.Zero(&v.RBD.Keyring, "/etc/ceph/keyring")
	}
	if v.AzureDisk != nil {
		defaultAzureDisk(v.AzureDisk)
	}
	if v.ScaleIO != nil {
		fill.Zero(&v.ScaleIO.StorageMode, "ThinProvisioned")
		fill.Zero(&v.ScaleIO.FSType, "xfs")
	}
}

func defaultProjection(p *corev1.ProjectedVolumeSource) {
	fill.Nil(&p.DefaultMode, defaultFileMode)
	for i := range p.Sources {
		if token := p.Sources[i].ServiceAccountToken; token != nil {
			fill.Nil(&token.ExpirationSeconds, defaultTokenSeconds)
		}
		if downward := p.Sources[i].DownwardAPI; downward != nil {
			for j := range downward.Items {
				defaultFieldRef(downward.Items[j].FieldRef)
			}
		}
		if certificate := p.Sources[i].PodCertificate; certificate != nil {
			fill.Nil(&certificate.MaxExpirationSeconds, 24*60*60)
		}
	}
}

func defaultAzureDisk(disk *corev1.AzureDiskVolumeSource) {
	fill.Nil(&disk.CachingMode, corev1.AzureDataDiskCachingReadWrite)
	fill.Nil(&disk.Kind, corev1.AzureSharedBlobDisk)
	fill.Nil(&disk.FSType, "ext4")
	fill.Nil(&disk.ReadOnly, false)
}

// DefaultPersistentVolumeClaimSpec fills in what a claim leaves out.
func DefaultPersistentVolumeClaimSpec(spec *corev1.PersistentVolumeClaimSpec) {
	fill.Nil(&spec.VolumeMode, corev1.PersistentVolumeFilesystem)
	roundResources(spec.Resources.Limits)
	roundResources(spec.Resources.Requests)
}
