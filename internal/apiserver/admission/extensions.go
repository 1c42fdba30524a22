package admission

import (
	"context"
	"fmt"
	"net/http"
	"runtime/debug"
	"sync"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	mutatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	validatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	webhookinitializer "k8s.io/apiserver/pkg/admission/plugin/webhook/initializer"
	mutatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/mutating"
	validatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/validating"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-base/compatibility"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/apiserver/objects"
	"github.com/coracle-io/coracle/internal/apiserver/webhooks"
	"github.com/coracle-io/coracle/internal/metrics"
	"github.com/coracle-io/coracle/internal/supervise"
)

// Access is what the plugins for users' webhooks and policies need of the server.
type Access struct {
	Kubernetes kubernetes.Interface
	Dynamic    dynamic.Interface
	Informers  informers.SharedInformerFactory
	Mapper     meta.RESTMapper
	Authorizer authorizer.Authorizer
	Version    compatibility.EffectiveVersion
	// Services finds the address of a webhook's service; Authentication adds
	// credentials to calls (nil: none).
	Services       webhook.ServiceResolver
	Authentication webhook.AuthenticationInfoResolverWrapper
}

// Extensions are the plugins that run users' webhooks and CEL policies, by
// name, for Config.Extensions. They cost nothing until the first object of
// their kind exists: then connect is called, once, and the plugin that has
// work is started. It runs until ctx ends. Plugins at work are measured by m,
// unless it is nil.
func Extensions(ctx context.Context, source objects.Source, m *metrics.Admission, connect func() (*Access, error)) map[string]admission.Interface {
	access := sync.OnceValues(connect)
	lazy := func(name string, build func() (admission.Interface, error), kinds ...string) *extension {
		e := &extension{ctx: ctx, name: name, starting: make(chan struct{}, 1), source: source, kinds: kinds, build: build, access: access}
		if m != nil {
			e.metrics = m.Plugin(name)
		}
		return e
	}
	return map[string]admission.Interface{
		"MutatingAdmissionWebhook": mutatingExtension{lazy("MutatingAdmissionWebhook", func() (admission.Interface, error) {
			return mutatingwebhook.NewMutatingWebhook(nil)
		}, objects.MutatingWebhooks)},
		"ValidatingAdmissionWebhook": validatingExtension{lazy("ValidatingAdmissionWebhook", func() (admission.Interface, error) {
			return validatingwebhook.NewValidatingAdmissionWebhook(nil)
		}, objects.ValidatingWebhooks)},
		"MutatingAdmissionPolicy": mutatingExtension{lazy("MutatingAdmissionPolicy", func() (admission.Interface, error) {
			return mutatingpolicy.NewPlugin(nil)
		}, objects.MutatingPolicies, objects.MutatingPolicyBindings)},
		"ValidatingAdmissionPolicy": validatingExtension{lazy("ValidatingAdmissionPolicy", func() (admission.Interface, error) {
			return validatingpolicy.NewPlugin(nil)
		}, objects.ValidatingPolicies, objects.ValidatingPolicyBindings)},
	}
}

// extension is a plugin that starts when it is first needed.
type extension struct {
	always
	ctx    context.Context
	name   string
	source objects.Source
	kinds  []string // all of them must have an object before there is work
	build  func() (admission.Interface, error)
	access func() (*Access, error)
	// metrics measures the plugin; nil does not.
	metrics *metrics.Plugin

	plugin   atomic.Pointer[admission.Interface] // nil until it has been started
	starting chan struct{}                       // holds a value while somebody starts it
}

// get returns the plugin; nil while there is no work for it. The first caller
// that finds work starts the plugin, others wait for that until ctx ends.
func (e *extension) get(ctx context.Context) (admission.Interface, error) {
	if plugin := e.plugin.Load(); plugin != nil {
		return *plugin, nil
	}
	if !e.needed() {
		return nil, nil
	}
	select {
	case e.starting <- struct{}{}:
		defer func() { <-e.starting }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if plugin := e.plugin.Load(); plugin != nil {
		return *plugin, nil
	}
	plugin, err := e.start(ctx)
	if err != nil {
		return nil, fmt.Errorf("starting the admission of %s: %w", e.kinds[0], err)
	}
	if e.metrics != nil {
		plugin = measure(plugin, e.metrics)
	}
	e.plugin.Store(&plugin)
	return plugin, nil
}

func (e *extension) needed() bool {
	for _, path := range e.kinds {
		kind := e.source.Kind(path)
		if kind == nil {
			return false
		}
		some := false
		for range kind.All("") {
			some = true
			break
		}
		if !some {
			return false
		}
	}
	return true
}

func (e *extension) start(ctx context.Context) (admission.Interface, error) {
	access, err := e.access()
	if err != nil {
		return nil, err
	}
	plugin, err := e.build()
	if err != nil {
		return nil, err
	}
	initializer.New(access.Kubernetes, access.Dynamic, access.Informers, access.Authorizer,
		utilfeature.DefaultFeatureGate, access.Version, e.ctx.Done(), access.Mapper).Initialize(plugin)
	authentication := access.Authentication
	if authentication == nil {
		authentication = func(r webhook.AuthenticationInfoResolver) webhook.AuthenticationInfoResolver { return r }
	}
	bounded := func(r webhook.AuthenticationInfoResolver) webhook.AuthenticationInfoResolver {
		return webhooks.Bounded(authentication(r))
	}
	webhookinitializer.NewPluginInitializer(bounded, access.Services).Initialize(plugin)
	if v, ok := plugin.(admission.InitializationValidator); ok {
		if err := v.ValidateInitialization(); err != nil {
			return nil, err
		}
	}
	access.Informers.Start(e.ctx.Done())
	access.Informers.WaitForCacheSync(ctx.Done())
	return plugin, ctx.Err()
}

// survive turns a panic of a plugin into the refusal of the write. What users
// wrote, or a webhook answered, can be more than the libraries that read it are
// prepared for: some JSON patches that make no sense panic in theirs.
func (e *extension) survive(ctx context.Context, err *error) {
	reason := recover()
	if reason == nil || reason == http.ErrAbortHandler { //nolint:errorlint // the sentinel of net/http
		return
	}
	// It is the server's, whoever asks: in one process ctx may be another component's.
	supervise.Note(klog.NewContext(e.ctx, klog.FromContext(ctx)), fmt.Errorf("admission plugin %s: %w", e.name, &supervise.Panic{Value: reason, Stack: debug.Stack()}))
	*err = apierrors.NewInternalError(fmt.Errorf("admission plugin %s failed on this request: the log has the details", e.name))
}

type mutatingExtension struct{ *extension }

func (e mutatingExtension) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) (err error) {
	plugin, err := e.get(ctx)
	if err != nil || plugin == nil || !plugin.Handles(a.GetOperation()) {
		return err
	}
	m, ok := plugin.(admission.MutationInterface)
	if !ok {
		return fmt.Errorf("%T does not mutate", plugin)
	}
	defer e.survive(ctx, &err)
	return m.Admit(ctx, a, o)
}

type validatingExtension struct{ *extension }

func (e validatingExtension) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) (err error) {
	plugin, err := e.get(ctx)
	if err != nil || plugin == nil || !plugin.Handles(a.GetOperation()) {
		return err
	}
	v, ok := plugin.(admission.ValidationInterface)
	if !ok {
		return fmt.Errorf("%T does not validate", plugin)
	}
	defer e.survive(ctx, &err)
	return v.Validate(ctx, a, o)
}
