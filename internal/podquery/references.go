package podquery

import v1 "k8s.io/api/core/v1"

// References records which kinds of objects a pod's spec refers to.
type References struct {
	Secrets, ConfigMaps bool
	Claims              bool // for persistent volumes
	Tokens              bool // of the service account, in projected volumes
}

// ReferencesOf returns what a pod's spec refers to.
func ReferencesOf(spec *v1.PodSpec) References {
	r := References{Secrets: len(spec.ImagePullSecrets) > 0}
	for i := range spec.Volumes {
		v := &spec.Volumes[i]
		r.Claims = r.Claims || v.PersistentVolumeClaim != nil || v.Ephemeral != nil
		r.ConfigMaps = r.ConfigMaps || v.ConfigMap != nil
		r.Secrets = r.Secrets || volumeHasSecret(v)
		if v.Projected == nil {
			continue
		}
		for _, s := range v.Projected.Sources {
			r.Secrets = r.Secrets || s.Secret != nil
			r.ConfigMaps = r.ConfigMaps || s.ConfigMap != nil
			r.Tokens = r.Tokens || s.ServiceAccountToken != nil
		}
	}
	env := func(env []v1.EnvVar, from []v1.EnvFromSource) {
		for _, e := range env {
			if e.ValueFrom != nil {
				r.Secrets = r.Secrets || e.ValueFrom.SecretKeyRef != nil
				r.ConfigMaps = r.ConfigMaps || e.ValueFrom.ConfigMapKeyRef != nil
			}
		}
		for _, f := range from {
			r.Secrets = r.Secrets || f.SecretRef != nil
			r.ConfigMaps = r.ConfigMaps || f.ConfigMapRef != nil
		}
	}
	for c := range AllContainers(spec) {
		env(c.Env, c.EnvFrom)
	}
	return r
}

// APIReference returns a kind of API objects that the kubelet would read for the
// pod, or "" if there is none.
func APIReference(spec *v1.PodSpec) string {
	refs := ReferencesOf(spec)
	switch {
	case spec.ServiceAccountName != "":
		return "a service account"
	case refs.Secrets:
		return "secrets"
	case refs.ConfigMaps:
		return "configmaps"
	case len(spec.ResourceClaims) > 0:
		return "resourceclaims"
	case refs.Tokens:
		return "serviceaccounts (via projected volumes)"
	case refs.Claims:
		return "persistentvolumeclaims"
	}
	for i := range spec.Volumes {
		v := &spec.Volumes[i]
		if v.CSI != nil {
			return "csidrivers (via CSI volumes)"
		}
		if v.Projected == nil {
			continue
		}
		for _, s := range v.Projected.Sources {
			if s.ClusterTrustBundle != nil {
				return "clustertrustbundles"
			}
			if s.PodCertificate != nil {
				return "podcertificates"
			}
		}
	}
	return ""
}

func volumeHasSecret(v *v1.Volume) bool {
	return v.Secret != nil || v.AzureFile != nil ||
		v.CSI != nil && v.CSI.NodePublishSecretRef != nil ||
		v.CephFS != nil && v.CephFS.SecretRef != nil ||
		v.Cinder != nil && v.Cinder.SecretRef != nil ||
		v.FlexVolume != nil && v.FlexVolume.SecretRef != nil ||
		v.ISCSI != nil && v.ISCSI.SecretRef != nil ||
		v.RBD != nil && v.RBD.SecretRef != nil ||
		v.ScaleIO != nil && v.ScaleIO.SecretRef != nil ||
		v.StorageOS != nil && v.StorageOS.SecretRef != nil
}
