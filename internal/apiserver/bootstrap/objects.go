// Package bootstrap creates the default objects of an API server and keeps them
// up to date: namespaces, roles and bindings, flow schemas and priority levels,
// priority classes, API services and the service network.
package bootstrap

import (
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"
	"k8s.io/utils/ptr"

	"github.com/coracle-io/coracle/internal/apiserver/objects"
	"github.com/coracle-io/coracle/internal/resource"
)

// Options are the parts of the default objects that depend on the server.
type Options struct {
	ServiceCIDRs []string
	// ClientCA and RequestHeaderCA, in PEM, are published for aggregated API
	// servers.
	ClientCA, RequestHeaderCA []byte
	// RequestHeaders are published with RequestHeaderCA, by their keys in the
	// ConfigMap.
	RequestHeaders map[string][]string
	Now            time.Time
	// Served are the group versions that this server serves.
	Served resource.GroupVersions
}

// wanted is a default object and its storage path.
type wanted struct {
	storagePath string
	obj         resource.Object
}

// wantedObjects returns all default objects.
func wantedObjects(o Options) ([]wanted, error) {
	authentication, err := authenticationConfig(o)
	if err != nil {
		return nil, err
	}
	out := append(namespaces(), forPodGroups(o, policy())...)
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

// forPodGroups adds permissions for PodGroups, if they are served: for the
// scheduler to read them and write their status, and for a controller to protect
// them.
func forPodGroups(o Options, roles []wanted) []wanted {
	if _, served := o.Served[schedulingv1beta1.SchemeGroupVersion]; !served {
		return roles
	}
	for _, w := range roles {
		if role, ok := w.obj.(*rbacv1.ClusterRole); ok && role.Name == "system:kube-scheduler" {
			role.Rules = append(role.Rules, rbacv1.PolicyRule{
				Verbs: []string{"get", "list", "watch"}, APIGroups: []string{schedulingv1beta1.GroupName}, Resources: []string{"podgroups"},
			}, rbacv1.PolicyRule{
				Verbs: []string{"patch", "update"}, APIGroups: []string{schedulingv1beta1.GroupName}, Resources: []string{"podgroups/status"},
			})
		}
	}
	const protects = "podgroup-protection-controller"
	name := "system:controller:" + protects
	return append(roles,
		wanted{objects.ClusterRoles, &rbacv1.ClusterRole{ObjectMeta: defaultMeta("", name), Rules: []rbacv1.PolicyRule{
			{Verbs: []string{"get", "list", "update", "watch"}, APIGroups: []string{schedulingv1beta1.GroupName}, Resources: []string{"podgroups"}},
			{Verbs: []string{"get", "list", "watch"}, APIGroups: []string{""}, Resources: []string{"pods"}},
		}}},
		wanted{objects.ClusterRoleBindings, &rbacv1.ClusterRoleBinding{
			ObjectMeta: defaultMeta("", name), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: metav1.NamespaceSystem, Name: protects}},
		}})
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

// tokenTracking returns the ConfigMap with the day since which the use of
// tokens in secrets is tracked (KEP-2799).
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

// Replaceable reports whether other servers usually serve a built-in group
// version. The aggregator registers it.
func Replaceable(gv schema.GroupVersion) bool { return gv == metricsv1beta1.SchemeGroupVersion }

// apiServices returns the APIServices of what this server serves, except for
// replaceable ones and the group of the APIServices themselves.
func apiServices(o Options) []wanted {
	var out []wanted
	for gv, priority := range o.Served {
		if gv.Group == apiregistrationv1.GroupName || Replaceable(gv) {
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

// authenticationConfig returns the ConfigMap with the authorities that
// aggregated API servers must trust.
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
