// Package admission mutates and validates writes by upstream's admission
// plugins, in upstream's order, and by AddressPools. Each plugin has a file of its
// name; those for webhooks and policies are in extensions.go.
//
//	decoded object ─► Admit (each plugin may mutate it) ─► validation ─► Validate ─► store
//
// Plugins read the watch cache and do not block, except for those that are
// registered so and those for webhooks and policies.
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

// Config configures the plugins.
type Config struct {
	// Enable and Disable are --enable-admission-plugins and
	// --disable-admission-plugins. They change the default set.
	Enable, Disable []string
	Objects         objects.Source
	// Refresh, if set, updates Objects to the state of the store. It is called
	// before a write is refused because of a missing object, which another API
	// server may have just created.
	Refresh    func(context.Context) error
	Authorizer authorizer.Authorizer
	Clock      clock.PassiveClock
	// RBAC, if set, checks writes of roles and bindings for privilege
	// escalation.
	RBAC *rbac.Authorizer
	// QuotaUpdater writes ResourceQuota statuses; nil disables enforcement.
	QuotaUpdater QuotaUpdater
	// CreateNamespace creates a namespace, for NamespaceAutoProvision. An existing
	// one is no error.
	CreateNamespace func(ctx context.Context, name string) error
	// Metrics measures the plugins that may block; nil disables it.
	Metrics *metrics.Admission
	// Features are the feature gates; nil is the default.
	Features *feature.Set
	// PodSecurity is the plugin's configuration. If nil, only namespace labels
	// restrict pods.
	PodSecurity *podsecurity.PodSecurityConfiguration
	// NotReadySeconds and UnreachableSeconds are how long pods tolerate nodes that
	// are not ready or unreachable, unless they say so; nil is 300.
	NotReadySeconds, UnreachableSeconds *int64
	// Configured are the configurations of plugins in
	// --admission-control-config-file, by name.
	Configured map[string]Configuration
	// Extensions are the plugins for webhooks and CEL policies, by name, as
	// returned by Extensions.
	Extensions map[string]admission.Interface
}

// registration is a plugin in the order.
type registration struct {
	name  string
	on    bool                              // enabled by default
	build func(*Config) admission.Interface // nil for plugins of Config.Extensions
	// blocks says that the plugin may wait for the store or a controller, or
	// evaluates rules of users. Only these plugins are measured: the others take
	// less time than measuring does. Extensions measure themselves.
	blocks bool
	// configured says that the plugin does not run without a configuration.
	configured bool
}

// order returns all plugins in upstream's order, with the one that upstream lacks.
func order() []registration {
	return []registration{
		{name: "AlwaysAdmit", build: func(*Config) admission.Interface { return alwaysAdmit{} }},
		{name: "NamespaceAutoProvision", build: newNamespaceAutoProvision, blocks: true},
		{name: "NamespaceLifecycle", on: true, build: newNamespaceLifecycle, blocks: true},
		{name: "NamespaceExists", build: newNamespaceExists},
		{name: "LimitPodHardAntiAffinityTopology", build: func(*Config) admission.Interface { return limitPodHardAntiAffinityTopology{} }},
		{name: "LimitRanger", on: true, build: newLimitRanger},
		{name: "ServiceAccount", on: true, build: newServiceAccount, blocks: true},
		{name: "NodeRestriction", on: true, build: newNodeRestriction},
		{name: "TaintNodesByCondition", on: true, build: func(*Config) admission.Interface { return taintNodesByCondition{} }},
		{name: "AlwaysPullImages", build: func(*Config) admission.Interface { return alwaysPullImages{} }},
		{name: "ImagePolicyWebhook", build: newImagePolicyWebhook, blocks: true, configured: true},
		{name: "PodSecurity", on: true, build: newPodSecurity, blocks: true},
		{name: "PodNodeSelector", build: newPodNodeSelector},
		{name: "Priority", on: true, build: newPriority},
		{name: "DefaultTolerationSeconds", on: true, build: newDefaultTolerationSeconds},
		{name: "PodTolerationRestriction", build: newPodTolerationRestriction},
		{name: "EventRateLimit", build: newEventRateLimit, configured: true},
		{name: "ExtendedResourceToleration", build: func(*Config) admission.Interface { return extendedResourceToleration{} }},
		{name: "DefaultStorageClass", on: true, build: newDefaultStorageClass},
		{name: "StorageObjectInUseProtection", on: true, build: func(*Config) admission.Interface { return storageObjectInUseProtection{} }},
		{name: "OwnerReferencesPermissionEnforcement", build: newOwnerReferencesPermissionEnforcement},
		{name: "PersistentVolumeClaimResize", on: true, build: newPersistentVolumeClaimResize},
		{name: "RuntimeClass", on: true, build: newRuntimeClass},
		{name: "CertificateApproval", on: true, build: newCertificateApproval},
		{name: "CertificateSigning", on: true, build: newCertificateSigning},
		{name: "ClusterTrustBundleAttest", on: true, build: newClusterTrustBundleAttest},
		{name: "CertificateSubjectRestriction", on: true, build: func(*Config) admission.Interface { return certificateSubjectRestriction{} }},
		{name: "DefaultIngressClass", on: true, build: newDefaultIngressClass},
		{name: "DenyServiceExternalIPs", build: func(*Config) admission.Interface { return denyServiceExternalIPs{} }},
		{name: "PodTopologyLabels", on: true, build: newPodTopologyLabels},
		{name: "NodeDeclaredFeatureValidator", on: true, build: newNodeDeclaredFeatureValidator},
		{name: "PodResizeValidator", on: true, build: newPodResizeValidator},
		{name: "AddressPools", on: true, build: func(*Config) admission.Interface { return addressPools{} }}, // upstream has none
		{name: "MutatingAdmissionPolicy", on: true},
		{name: "MutatingAdmissionWebhook", on: true},
		{name: "ValidatingAdmissionPolicy", on: true},
		{name: "ValidatingAdmissionWebhook", on: true},
		{name: "ResourceQuota", on: true, build: newResourceQuota, blocks: true},
		{name: "AlwaysDeny", build: func(*Config) admission.Interface { return alwaysDeny{} }},
	}
}

// Names returns the names of all plugins in their order.
func Names() []string {
	var names []string
	for _, r := range order() {
		names = append(names, r.name)
	}
	return names
}

// Chain runs the enabled plugins.
type Chain struct {
	names   []string
	plugins []admission.Interface
	config  *Config
}

var (
	_ admission.MutationInterface   = (*Chain)(nil)
	_ admission.ValidationInterface = (*Chain)(nil)
)

// Check returns an error for unknown plugins in --enable-admission-plugins and
// --disable-admission-plugins, and for a plugin in both.
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

// New builds the chain. It fails if Check does, and if a plugin lacks the
// configuration that it needs.
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
		if _, ok := c.Configured[r.name]; r.configured && !ok {
			if _, err := Configure(r.name, nil); err != nil {
				return nil, fmt.Errorf("couldn't init admission plugin %q: %w", r.name, err)
			}
		}
		plugin, ok := c.Extensions[r.name]
		if !ok && r.build != nil {
			plugin = r.build(c)
		}
		if plugin != nil && c.Metrics != nil && r.blocks {
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

// Plugins returns the names of the enabled plugins in their order.
func (c *Chain) Plugins() []string { return c.names }

// Admit runs the mutating plugins, up to the first error. It runs them a second
// time if a webhook or policy with reinvocationPolicy IfNeeded must see a later
// change. Then it checks roles and bindings for privilege escalation, and
// policies for parameters that their writer may not read.
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

// Validate runs the validating plugins on the final object, up to the first
// error.
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

// onCreate, onUpdate, onWrite and always implement Handles for plugins.
type (
	onCreate struct{}
	onUpdate struct{}
	onWrite  struct{} // create and update
	always   struct{}
)

func (onCreate) Handles(op admission.Operation) bool { return op == admission.Create }
func (onUpdate) Handles(op admission.Operation) bool { return op == admission.Update }
func (onWrite) Handles(op admission.Operation) bool {
	return op == admission.Create || op == admission.Update
}
func (always) Handles(admission.Operation) bool { return true }

// is reports whether a is about the resource and subresource.
func is(a admission.Attributes, group, resource, subresource string) bool {
	return a.GetSubresource() == subresource && a.GetResource().GroupResource() == schema.GroupResource{Group: group, Resource: resource}
}

// refused returns a Forbidden error that names the object and the reason.
func refused(a admission.Attributes, format string, args ...any) error {
	return admission.NewForbidden(a, fmt.Errorf(format, args...))
}
