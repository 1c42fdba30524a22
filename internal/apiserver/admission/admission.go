// Package admission changes and refuses writes by the plugins of upstream's
// API server, in their order. One file is one plugin.
//
//	decoded object ─► Admit (each plugin may change it) ─► validation ─► Validate ─► store
//
// Plugins read the watch cache and decide without waiting, but for those that
// must ask others (webhooks) or wait for a controller (ServiceAccount).
package admission

import (
	"context"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	podsecurity "k8s.io/pod-security-admission/admission/api"
	"k8s.io/utils/clock"

	"github.com/coracle-io/coracle/internal/apiserver/authz/rbac"
	"github.com/coracle-io/coracle/internal/apiserver/objects"
	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/metrics"
)

// Config is what plugins work with.
type Config struct {
	// Enable and Disable are --enable-admission-plugins and
	// --disable-admission-plugins: changes to what is on by default.
	Enable, Disable []string
	Objects         objects.Source
	// Refresh, if set, brings Objects up to what is stored now; called before
	// a write is refused because of something that another API server may
	// have just created.
	Refresh    func(context.Context) error
	Authorizer authorizer.Authorizer
	Clock      clock.PassiveClock
	// RBAC, if set, keeps users from granting what they do not hold.
	RBAC *rbac.Authorizer
	// QuotaUpdater writes ResourceQuota statuses; nil turns enforcement off.
	QuotaUpdater QuotaUpdater
	// Metrics measures the plugins that may have to wait; nil measures none.
	Metrics *metrics.Admission
	// Features are those that are on; nil is what is on by default.
	Features *feature.Set
	// PodSecurity is the plugin's configuration; nil restricts nothing but what
	// the labels of namespaces do.
	PodSecurity *podsecurity.PodSecurityConfiguration
	// Extensions are plugins built elsewhere (webhooks, CEL policies), by
	// name; they take their place in the order.
	Extensions map[string]admission.Interface
}

// registration is a plugin's place in the order.
type registration struct {
	name  string
	on    bool // by default
	build func(*Config) admission.Interface
}

// order is upstream's order of plugins.
func order() []registration {
	return []registration{
		{"AlwaysAdmit", false, func(*Config) admission.Interface { return alwaysAdmit{} }},
		{"NamespaceAutoProvision", false, nil},
		{"NamespaceLifecycle", true, newNamespaceLifecycle},
		{"NamespaceExists", false, newNamespaceExists},
		{"LimitRanger", true, newLimitRanger},
		{"ServiceAccount", true, newServiceAccount},
		{"NodeRestriction", true, newNodeRestriction},
		{"TaintNodesByCondition", true, func(*Config) admission.Interface { return taintNodesByCondition{} }},
		{"PodSecurity", true, newPodSecurity},
		{"Priority", true, newPriority},
		{"DefaultTolerationSeconds", true, func(*Config) admission.Interface { return defaultTolerationSeconds{} }},
		{"ExtendedResourceToleration", false, func(*Config) admission.Interface { return extendedResourceToleration{} }},
		{"DefaultStorageClass", true, newDefaultStorageClass},
		{"StorageObjectInUseProtection", true, func(*Config) admission.Interface { return storageObjectInUseProtection{} }},
		{"PersistentVolumeClaimResize", true, newPersistentVolumeClaimResize},
		{"RuntimeClass", true, newRuntimeClass},
		{"CertificateApproval", true, newCertificateApproval},
		{"CertificateSigning", true, newCertificateSigning},
		{"ClusterTrustBundleAttest", true, newClusterTrustBundleAttest},
		{"CertificateSubjectRestriction", true, func(*Config) admission.Interface { return certificateSubjectRestriction{} }},
		{"DefaultIngressClass", true, newDefaultIngressClass},
		{"DenyServiceExternalIPs", false, func(*Config) admission.Interface { return denyServiceExternalIPs{} }},
		{"PodTopologyLabels", true, newPodTopologyLabels},
		{"MutatingAdmissionPolicy", true, nil},
		{"MutatingAdmissionWebhook", true, nil},
		{"ValidatingAdmissionPolicy", true, nil},
		{"ValidatingAdmissionWebhook", true, nil},
		{"ResourceQuota", true, newResourceQuota},
		{"AlwaysDeny", false, func(*Config) admission.Interface { return alwaysDeny{} }},
	}
}

// Names lists the plugins in their order.
func Names() []string {
	var names []string
	for _, r := range order() {
		names = append(names, r.name)
	}
	return names
}

// Chain runs the plugins that are on.
type Chain struct {
	names   []string
	plugins []admission.Interface
	config  *Config
}

// waiting are the plugins that may have to wait for others: the store, a
// controller, users' servers and expressions. They are measured; what the
// others do takes less time than measuring it.
var waiting = []string{"NamespaceLifecycle", "ServiceAccount", "PodSecurity", "ResourceQuota"}

var (
	_ admission.MutationInterface   = (*Chain)(nil)
	_ admission.ValidationInterface = (*Chain)(nil)
)

// Check reports plugins in --enable-admission-plugins and
// --disable-admission-plugins that there are not, and one that is in both.
func Check(enable, disable []string) error {
	known := Names()
	for _, flag := range []struct {
		name   string
		values []string
	}{{"enable-admission-plugins", enable}, {"disable-admission-plugins", disable}} {
		for _, v := range flag.values {
			if !slices.Contains(known, v) {
				return fmt.Errorf("--%s: plugin %q is unknown, there are %s", flag.name, v, strings.Join(known, ", "))
			}
		}
	}
	for _, v := range enable {
		if slices.Contains(disable, v) {
			return fmt.Errorf("%s is in both --enable-admission-plugins and --disable-admission-plugins: choose one", v)
		}
	}
	return nil
}

// New builds the chain. It fails on what Check reports.
func New(c *Config) (*Chain, error) {
	if err := Check(c.Enable, c.Disable); err != nil {
		return nil, err
	}
	chain := &Chain{config: c}
	for _, r := range order() {
		enabled, disabled := slices.Contains(c.Enable, r.name), slices.Contains(c.Disable, r.name)
		if disabled || !r.on && !enabled {
			continue
		}
		plugin, ok := c.Extensions[r.name]
		if !ok && r.build != nil {
			plugin = r.build(c)
		}
		if plugin != nil && c.Metrics != nil && slices.Contains(waiting, r.name) {
			plugin = measure(plugin, c.Metrics.Plugin(r.name))
		}
		if plugin != nil {
			chain.names = append(chain.names, r.name)
			chain.plugins = append(chain.plugins, plugin)
		}
	}
	return chain, nil
}

// Handles implements admission.Interface.
func (c *Chain) Handles(op admission.Operation) bool {
	return slices.ContainsFunc(c.plugins, func(p admission.Interface) bool { return p.Handles(op) })
}

// Plugins lists the names of the plugins that are on, in their order.
func (c *Chain) Plugins() []string { return c.names }

// Admit lets every plugin change the object, once more if a webhook or policy
// changed what another that wants to see such changes has passed
// (reinvocationPolicy: IfNeeded); the first error ends it. Then roles and
// bindings are held against what their writer may grant, and policies against
// what their writer may read.
func (c *Chain) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	if err := c.admit(ctx, a, o); err != nil {
		return err
	}
	if again := a.GetReinvocationContext(); again.ShouldReinvoke() {
		again.SetIsReinvoke()
		if err := c.admit(ctx, a, o); err != nil {
			return err
		}
	}
	if !(onWrite{}).Handles(a.GetOperation()) {
		return nil
	}
	switch group := a.GetResource().Group; {
	case group == rbacv1.GroupName && c.config.RBAC != nil:
		return c.config.RBAC.CheckEscalation(ctx, c.config.Authorizer, a.GetUserInfo(), a.GetObject(), a.GetOldObject())
	case group == admissionregistrationv1.GroupName && a.GetSubresource() == "" && c.config.Authorizer != nil:
		return c.checkParams(ctx, a, o)
	}
	return nil
}

func (c *Chain) admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	for _, p := range c.plugins {
		if m, ok := p.(admission.MutationInterface); ok && p.Handles(a.GetOperation()) {
			if err := m.Admit(ctx, a, o); err != nil {
				return err
			}
		}
	}
	return nil
}

// Validate asks every plugin about the final object; the first error ends it.
func (c *Chain) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	for _, p := range c.plugins {
		if v, ok := p.(admission.ValidationInterface); ok && p.Handles(a.GetOperation()) {
			if err := v.Validate(ctx, a, o); err != nil {
				return err
			}
		}
	}
	return nil
}

// onCreate, onUpdate and onWrite say which operations a plugin handles.
type (
	onCreate struct{}
	onUpdate struct{}
	onWrite  struct{} // both
	always   struct{}
)

func (onCreate) Handles(op admission.Operation) bool { return op == admission.Create }
func (onUpdate) Handles(op admission.Operation) bool { return op == admission.Update }
func (onWrite) Handles(op admission.Operation) bool {
	return op == admission.Create || op == admission.Update
}
func (always) Handles(admission.Operation) bool { return true }

// is says whether a is about this resource and subresource.
func is(a admission.Attributes, group, resource, subresource string) bool {
	return a.GetSubresource() == subresource && a.GetResource().GroupResource() == schema.GroupResource{Group: group, Resource: resource}
}

// refused is a 403 that names the object and gives the reason.
func refused(a admission.Attributes, format string, args ...any) error {
	return admission.NewForbidden(a, fmt.Errorf(format, args...))
}

type alwaysAdmit struct{ always }

func (alwaysAdmit) Admit(context.Context, admission.Attributes, admission.ObjectInterfaces) error {
	return nil
}

type alwaysDeny struct{ always }

func (alwaysDeny) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	return refused(a, "admission control is denying all modifications")
}

func (p alwaysDeny) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	return p.Admit(ctx, a, o)
}
