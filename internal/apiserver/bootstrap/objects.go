// Package bootstrap makes the objects that every API server starts with and
// keeps the defaults among them up to date: namespaces, roles and bindings,
// flow schemas, priority classes, API services, the service network.
package bootstrap

import (
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/apiserver/objects"
	"github.com/coracle-io/coracle/internal/resource"
)

// Options are what differs from server to server.
type Options struct {
	ServiceCIDRs []string
	// ClientCA and RequestHeaderCA (PEM) are published for aggregated API servers.
	ClientCA, RequestHeaderCA []byte
	// RequestHeaders are published besides RequestHeaderCA, by their keys in
	// the ConfigMap.
	RequestHeaders map[string][]string
	Now            time.Time
	// Served are the group versions that this server serves.
	Served resource.GroupVersions
}

// wanted is an object that must exist, and where it is stored.
type wanted struct {
	storagePath string
	obj         resource.Object
}

// wantedObjects returns everything a fresh server makes.
func wantedObjects(o Options) ([]wanted, error) {
	authentication, err := authenticationConfig(o)
	if err != nil {
		return nil, err
	}
	out := append(namespaces(), policy()...)
	out = append(out, flowControl()...)
	out = append(out,
		priorityClass("system-cluster-critical", 2000000000, "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary."),
		priorityClass("system-node-critical", 2000001000, "Used for system critical pods that must not be moved from their current node."))
	out = append(out, apiServices(o)...)
	if len(o.ServiceCIDRs) > 0 {
		out = append(out, wanted{objects.ServiceCIDRs, &networkingv1.ServiceCIDR{
			ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: o.ServiceCIDRs}}})
	}
	return append(out, authentication, tokenTracking(o.Now)), nil
}

func namespaces() []wanted {
	var out []wanted
	for _, name := range []string{metav1.NamespaceDefault, corev1.NamespaceNodeLease, metav1.NamespacePublic, metav1.NamespaceSystem} {
		out = append(out, wanted{objects.Namespaces, &corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelMetadataName: name}},
			Spec:       corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{corev1.FinalizerKubernetes}},
			Status:     corev1.NamespaceStatus{Phase: corev1.NamespaceActive},
		}})
	}
	return out
}

// tokenTracking says since when it is known which tokens in secrets are used.
func tokenTracking(since time.Time) wanted {
	return wanted{objects.ConfigMaps, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "kube-apiserver-legacy-service-account-token-tracking"},
		Data:       map[string]string{"since": since.UTC().Format(time.DateOnly)},
	}}
}

func priorityClass(name string, value int32, description string) wanted {
	return wanted{objects.PriorityClasses, &schedulingv1.PriorityClass{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value, Description: description,
		PreemptionPolicy: ptr.To(corev1.PreemptLowerPriority)}}
}

const automanaged = "kube-aggregator.kubernetes.io/automanaged"

// apiServices register what this server serves, but for the group of the
// APIServices themselves.
func apiServices(o Options) []wanted {
	var out []wanted
	for gv, priority := range o.Served {
		if gv.Group == apiregistrationv1.GroupName {
			continue
		}
		out = append(out, wanted{objects.APIServices, &apiregistrationv1.APIService{
			ObjectMeta: metav1.ObjectMeta{Name: gv.Version + "." + gv.Group, Labels: map[string]string{automanaged: "onstart"}},
			Spec: apiregistrationv1.APIServiceSpec{Group: gv.Group, Version: gv.Version,
				GroupPriorityMinimum: priority.Group, VersionPriority: priority.Version},
		}})
	}
	return out
}

// authenticationConfig tells aggregated API servers whom this one trusts.
func authenticationConfig(o Options) (wanted, error) {
	data := map[string]string{}
	if len(o.ClientCA) > 0 {
		data["client-ca-file"] = string(o.ClientCA)
	}
	if len(o.RequestHeaderCA) > 0 {
		data["requestheader-client-ca-file"] = string(o.RequestHeaderCA)
		for key, values := range o.RequestHeaders {
			list, err := json.Marshal(values)
			if err != nil {
				return wanted{}, fmt.Errorf("%s: %w", key, err)
			}
			data[key] = string(list)
		}
	}
	return wanted{objects.ConfigMaps, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "extension-apiserver-authentication"}, Data: data}}, nil
}
