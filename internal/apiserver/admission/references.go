package admission

import (
	corev1 "k8s.io/api/core/v1"

	podutil "github.com/coracle-io/coracle/internal/pod"
)

// references says which kinds of objects a pod's spec refers to.
type references struct{ secrets, configMaps, claims, tokens bool }

func referencesOf(spec *corev1.PodSpec) references {
	r := references{secrets: len(spec.ImagePullSecrets) > 0}
	for i := range spec.Volumes {
		v := &spec.Volumes[i]
		r.claims = r.claims || v.PersistentVolumeClaim != nil || v.Ephemeral != nil
		r.configMaps = r.configMaps || v.ConfigMap != nil
		r.secrets = r.secrets || volumeHasSecret(v)
		if v.Projected == nil {
			continue
		}
		for _, s := range v.Projected.Sources {
			r.secrets = r.secrets || s.Secret != nil
			r.configMaps = r.configMaps || s.ConfigMap != nil
			r.tokens = r.tokens || s.ServiceAccountToken != nil
		}
	}
	env := func(env []corev1.EnvVar, from []corev1.EnvFromSource) {
		for _, e := range env {
			if e.ValueFrom != nil {
				r.secrets = r.secrets || e.ValueFrom.SecretKeyRef != nil
				r.configMaps = r.configMaps || e.ValueFrom.ConfigMapKeyRef != nil
			}
		}
		for _, f := range from {
			r.secrets = r.secrets || f.SecretRef != nil
			r.configMaps = r.configMaps || f.ConfigMapRef != nil
		}
	}
	for c := range podutil.AllContainers(spec) {
		env(c.Env, c.EnvFrom)
	}
	return r
}

// apiReference names a kind of objects of the API that the pod would have its
// kubelet read, "" if there is none. A pod that a node makes up must not give
// that node anything.
func apiReference(spec *corev1.PodSpec) string {
	refs := referencesOf(spec)
	switch {
	case spec.ServiceAccountName != "":
		return "a service account"
	case refs.secrets:
		return "secrets"
	case refs.configMaps:
		return "configmaps"
	case len(spec.ResourceClaims) > 0:
		return "resourceclaims"
	case refs.tokens:
		return "serviceaccounts (via projected volumes)"
	case refs.claims:
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

func volumeHasSecret(v *corev1.Volume) bool {
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
