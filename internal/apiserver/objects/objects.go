// Package objects gives the stages of a request (authentication, authorization,
// admission) typed, read-only access to the API server's own objects. Reads never
// block and never fail. They return the current state of the watch cache.
package objects

import (
	"iter"

	"github.com/coracle-io/coracle/internal/resource"
)

// Storage paths of the kinds that the stages read.
const (
	Namespaces          = "namespaces"
	Nodes               = "minions"
	Pods                = "pods"
	Secrets             = "secrets"
	ServiceAccounts     = "serviceaccounts"
	ConfigMaps          = "configmaps"
	LimitRanges         = "limitranges"
	ResourceQuotas      = "resourcequotas"
	PersistentVolumes   = "persistentvolumes"
	Claims              = "persistentvolumeclaims"
	Services            = "services/specs"
	EndpointSlices      = "endpointslices"
	Roles               = "roles"
	ClusterRoles        = "clusterroles"
	RoleBindings        = "rolebindings"
	ClusterRoleBindings = "clusterrolebindings"
	PriorityClasses     = "priorityclasses"
	StorageClasses      = "storageclasses"
	VolumeAttachments   = "volumeattachments"
	CSIDrivers          = "csidrivers"
	RuntimeClasses      = "runtimeclasses"
	IngressClasses      = "ingressclasses"
	ResourceClaims      = "resourceclaims"
	DeviceClasses       = "deviceclasses"
	ResourceSlices      = "resourceslices"
	FlowSchemas         = "flowschemas"
	PriorityLevels      = "prioritylevelconfigurations"
	ServiceCIDRs        = "servicecidrs"
	APIServices         = "apiregistration.k8s.io/apiservices"
	PodCertificates     = "podcertificaterequests"
	TrustBundles        = "clustertrustbundles"

	MutatingWebhooks          = "mutatingwebhookconfigurations"
	ValidatingWebhooks        = "validatingwebhookconfigurations"
	MutatingPolicies          = "mutatingadmissionpolicies"
	MutatingPolicyBindings    = "mutatingadmissionpolicybindings"
	ValidatingPolicies        = "validatingadmissionpolicies"
	ValidatingPolicyBindings  = "validatingadmissionpolicybindings"
	CustomResourceDefinitions = "apiextensions.k8s.io/customresourcedefinitions"
	ReplicationControllers    = "controllers"
	PodNodeNameField          = "spec.nodeName"
)

// Kind is one kind's objects. Objects are shared and must never be changed.
type Kind interface {
	Get(namespace, name string) (resource.Object, bool)
	// Len returns how many objects there are in all namespaces.
	Len() int
	// All iterates over one namespace ("" is all) in key order, from one snapshot.
	All(namespace string) iter.Seq[resource.Object]
	// Lookup iterates over the objects whose selectable field has the value. ok
	// is false if the kind has no index of the field.
	Lookup(field, value string) (found iter.Seq[resource.Object], ok bool)
	// Revision increases with every change of an object of this kind.
	Revision() int64
}

// Source finds a Kind by its storage path; nil if it is not served.
type Source interface {
	Kind(storagePath string) Kind
}

// Reader is a Kind with the objects' own type. A kind that is not served
// reads as empty.
type Reader[T resource.Object] struct{ kind Kind }

// Of returns the reader of a storage path.
func Of[T resource.Object](s Source, storagePath string) Reader[T] {
	return Reader[T]{kind: s.Kind(storagePath)}
}

// Get returns the object, or ok false.
func (r Reader[T]) Get(namespace, name string) (obj T, ok bool) {
	if r.kind == nil {
		return obj, false
	}
	o, ok := r.kind.Get(namespace, name)
	if !ok {
		return obj, false
	}
	obj, ok = o.(T)
	return obj, ok
}

// All iterates over one namespace ("" is all) in key order, from one snapshot.
func (r Reader[T]) All(namespace string) iter.Seq[T] {
	return func(yield func(T) bool) {
		if r.kind == nil {
			return
		}
		for o := range r.kind.All(namespace) {
			if typed, ok := o.(T); ok && !yield(typed) {
				return
			}
		}
	}
}

// Where iterates over the objects whose selectable field has the value. match
// must report the same for one object; it is used for kinds without an index.
func (r Reader[T]) Where(field, value string, match func(T) bool) iter.Seq[T] {
	return func(yield func(T) bool) {
		if r.kind == nil {
			return
		}
		found, ok := r.kind.Lookup(field, value)
		if !ok {
			found = r.kind.All("")
		}
		for o := range found {
			if typed, isT := o.(T); isT && (ok || match(typed)) && !yield(typed) {
				return
			}
		}
	}
}

// Revision increases with every change of an object of this kind.
func (r Reader[T]) Revision() int64 {
	if r.kind == nil {
		return 0
	}
	return r.kind.Revision()
}
