package node

import (
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/apiserver/objects"
	"github.com/coracle-io/coracle/internal/podquery"
)

// relations finds out which objects a node needs for its pods. It follows the
// references at the time of the request, so that it never lags behind a binding.
// A node has few pods, which are indexed by node.
//
//	node ─► pods ─► secrets, config maps, service accounts, resource claims
//	              └► claims ─► volumes bound to them ─► secrets
//	node ─► volume attachments, resource slices, pod certificate requests
//
// A volume belongs to the claim in its spec.claimRef, which users of the claim's
// namespace cannot write. The references of mirror pods do not count, since
// nodes create them.
type relations struct {
	pods        objects.Reader[*corev1.Pod]
	claims      objects.Reader[*corev1.PersistentVolumeClaim]
	volumes     objects.Reader[*corev1.PersistentVolume]
	attachments objects.Reader[*storagev1.VolumeAttachment]
	devices     objects.Reader[*resourcev1.ResourceSlice]
	requests    objects.Reader[*certificatesv1.PodCertificateRequest]
}

// kind is the kind of an object that a pod refers to.
type kind int

const (
	secret kind = iota
	configMap
	claim
	volume
	resourceClaim
	serviceAccount
)

// any reports whether a pod on the node satisfies the condition. It ignores
// mirror pods.
func (r *relations) any(node, namespace string, condition func(*corev1.Pod) bool) bool {
	onNode := func(p *corev1.Pod) bool { return p.Spec.NodeName == node }
	for p := range r.pods.Where(objects.PodNodeNameField, node, onNode) {
		if podquery.IsMirror(p) {
			continue
		}
		if (namespace == "" || p.Namespace == namespace) && condition(p) {
			return true
		}
	}
	return false
}

// needs reports whether a pod on the node refers to the object.
func (r *relations) needs(node string, k kind, namespace, name string) bool {
	if k == volume {
		v, ok := r.volumes.Get("", name)
		return ok && v.Spec.ClaimRef != nil && r.any(node, v.Spec.ClaimRef.Namespace, func(p *corev1.Pod) bool {
			return claimsOf(p)[v.Spec.ClaimRef.Name] && r.boundTo(v, v.Spec.ClaimRef.Namespace, v.Spec.ClaimRef.Name)
		})
	}
	if k == secret && r.volumeSecret(node, namespace, name) {
		return true
	}
	return r.any(node, namespace, func(p *corev1.Pod) bool { return refersTo(p, k, name) })
}

// boundTo reports whether a volume is bound to the claim. A new claim with the
// name of a former one is another claim.
func (r *relations) boundTo(v *corev1.PersistentVolume, namespace, name string) bool {
	ref := v.Spec.ClaimRef
	if ref == nil || ref.Namespace != namespace || ref.Name != name {
		return false
	}
	if ref.UID == "" {
		return true
	}
	c, ok := r.claims.Get(namespace, name)
	return ok && c.UID == ref.UID
}

// volumeSecret reports whether a volume that a pod on the node uses refers to
// the secret.
func (r *relations) volumeSecret(node, namespace, name string) bool {
	return r.any(node, "", func(p *corev1.Pod) bool {
		for claimName := range claimsOf(p) {
			c, ok := r.claims.Get(p.Namespace, claimName)
			if !ok || c.Spec.VolumeName == "" {
				continue
			}
			v, ok := r.volumes.Get("", c.Spec.VolumeName)
			if ok && r.boundTo(v, p.Namespace, claimName) && volumeRefersToSecret(v, c.Namespace, namespace, name) {
				return true
			}
		}
		return false
	})
}

func volumeRefersToSecret(v *corev1.PersistentVolume, claimNamespace, namespace, name string) bool {
	is := func(ns, n string) bool {
		if ns == "" {
			ns = claimNamespace
		}
		return ns == namespace && n == name
	}
	s := v.Spec.PersistentVolumeSource
	var refs []*corev1.SecretReference
	if s.CSI != nil {
		refs = append(refs, s.CSI.NodePublishSecretRef, s.CSI.NodeStageSecretRef, s.CSI.NodeExpandSecretRef)
	}
	if s.CephFS != nil {
		refs = append(refs, s.CephFS.SecretRef)
	}
	if s.Cinder != nil {
		refs = append(refs, s.Cinder.SecretRef)
	}
	if s.FlexVolume != nil {
		refs = append(refs, s.FlexVolume.SecretRef)
	}
	if s.ISCSI != nil {
		refs = append(refs, s.ISCSI.SecretRef)
	}
	if s.RBD != nil {
		refs = append(refs, s.RBD.SecretRef)
	}
	if s.ScaleIO != nil {
		refs = append(refs, s.ScaleIO.SecretRef)
	}
	if f := s.AzureFile; f != nil && is(ptr.Deref(f.SecretNamespace, ""), f.SecretName) {
		return true
	}
	for _, ref := range refs {
		if ref != nil && is(ref.Namespace, ref.Name) {
			return true
		}
	}
	return false
}

func (r *relations) attachment(node, name string) bool {
	a, ok := r.attachments.Get("", name)
	return ok && a.Spec.NodeName == node
}

func (r *relations) resourceSlice(node, name string) bool {
	s, ok := r.devices.Get("", name)
	return ok && s.Spec.NodeName != nil && *s.Spec.NodeName == node
}

func (r *relations) podCertificate(node, namespace, name string) bool {
	c, ok := r.requests.Get(namespace, name)
	return ok && string(c.Spec.NodeName) == node
}

// claimsOf returns the names of the pod's claims, including those of generic
// ephemeral volumes.
func claimsOf(p *corev1.Pod) map[string]bool {
	out := map[string]bool{}
	for name := range podquery.ClaimNames(p) {
		out[name] = true
	}
	return out
}

// refersTo reports whether the pod's spec or, for resource claims, its status
// names the object of the pod's namespace.
func refersTo(p *corev1.Pod, k kind, name string) bool {
	switch k {
	case claim:
		return claimsOf(p)[name]
	case serviceAccount:
		return p.Spec.ServiceAccountName == name
	case resourceClaim:
		for _, c := range p.Spec.ResourceClaims {
			if c.ResourceClaimName != nil && *c.ResourceClaimName == name {
				return true
			}
		}
		for _, c := range p.Status.ResourceClaimStatuses {
			if c.ResourceClaimName != nil && *c.ResourceClaimName == name {
				return true
			}
		}
		e := p.Status.ExtendedResourceClaimStatus
		return e != nil && e.ResourceClaimName == name
	}
	if k == secret {
		for _, s := range p.Spec.ImagePullSecrets {
			if s.Name == name {
				return true
			}
		}
	}
	for i := range p.Spec.Volumes {
		if volumeNames(&p.Spec.Volumes[i], k, name) {
			return true
		}
	}
	return containersName(p, k, name)
}

func volumeNames(v *corev1.Volume, k kind, name string) bool {
	if v.Projected != nil {
		for _, s := range v.Projected.Sources {
			if k == secret && s.Secret != nil && s.Secret.Name == name || k == configMap && s.ConfigMap != nil && s.ConfigMap.Name == name {
				return true
			}
		}
	}
	if k == configMap {
		return v.ConfigMap != nil && v.ConfigMap.Name == name
	}
	is := func(ref *corev1.LocalObjectReference) bool { return ref != nil && ref.Name == name }
	switch {
	case v.Secret != nil:
		return v.Secret.SecretName == name
	case v.CSI != nil:
		return is(v.CSI.NodePublishSecretRef)
	case v.AzureFile != nil:
		return v.AzureFile.SecretName == name
	case v.CephFS != nil:
		return is(v.CephFS.SecretRef)
	case v.Cinder != nil:
		return is(v.Cinder.SecretRef)
	case v.FlexVolume != nil:
		return is(v.FlexVolume.SecretRef)
	case v.ISCSI != nil:
		return is(v.ISCSI.SecretRef)
	case v.RBD != nil:
		return is(v.RBD.SecretRef)
	case v.ScaleIO != nil:
		return is(v.ScaleIO.SecretRef)
	case v.StorageOS != nil:
		return is(v.StorageOS.SecretRef)
	}
	return false
}

func containersName(p *corev1.Pod, k kind, name string) bool {
	in := func(env []corev1.EnvVar, from []corev1.EnvFromSource) bool {
		for _, f := range from {
			if k == secret && f.SecretRef != nil && f.SecretRef.Name == name || k == configMap && f.ConfigMapRef != nil && f.ConfigMapRef.Name == name {
				return true
			}
		}
		for _, e := range env {
			if e.ValueFrom == nil {
				continue
			}
			if s := e.ValueFrom.SecretKeyRef; k == secret && s != nil && s.Name == name {
				return true
			}
			if c := e.ValueFrom.ConfigMapKeyRef; k == configMap && c != nil && c.Name == name {
				return true
			}
		}
		return false
	}
	for c := range podquery.AllContainers(&p.Spec) {
		if in(c.Env, c.EnvFrom) {
			return true
		}
	}
	return false
}
