package admission

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/wait"
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

	"github.com/coracle-io/coracle/internal/amount/celamount"
	"github.com/coracle-io/coracle/internal/apiserver/objects"
	"github.com/coracle-io/coracle/internal/apiserver/webhooks"
	"github.com/coracle-io/coracle/internal/metrics"
	definitions "github.com/coracle-io/coracle/internal/resource/admissionregistration"
	"github.com/coracle-io/coracle/internal/supervise"
)

// Access holds the clients and informers that the plugins for webhooks and CEL
// policies use, and the server's authorizer and version.
type Access struct {
	Kubernetes kubernetes.Interface
	Dynamic    dynamic.Interface
	Informers  informers.SharedInformerFactory
	Mapper     meta.RESTMapper
	Authorizer authorizer.Authorizer
	Version    compatibility.EffectiveVersion
	// Services resolves the addresses of webhooks' services. Authentication
	// changes how webhooks are called, such as by tracing; nil changes nothing.
	Services       webhook.ServiceResolver
	Authentication webhook.AuthenticationInfoResolverWrapper
}

// Extensions returns the plugins for webhooks and CEL policies, by name, for
// Config.Extensions. A plugin starts when the first objects of its kinds exist, or
// at the first write if its configuration in configured names a directory of
// objects. It runs until ctx ends. connect is called once, when the first plugin
// starts. m measures the started plugins unless it is nil.
func Extensions(ctx context.Context, source objects.Source, m *metrics.Admission, configured map[string]Configuration, connect func() (*Access, error)) map[string]admission.Interface {
	access := sync.OnceValues(connect)
	lazy := func(name string, build func(configuration io.Reader) (admission.Interface, error), kinds ...string) *extension {
		e := &extension{ctx: ctx, name: name, starting: make(chan struct{}, 1), source: source, kinds: kinds, build: build, configuration: configured[name], access: access}
		if m != nil {
			e.metrics = m.Plugin(name)
		}
		return e
	}
	return map[string]admission.Interface{
		"MutatingAdmissionWebhook": newMutatingWebhookExtension(lazy("MutatingAdmissionWebhook", func(configuration io.Reader) (admission.Interface, error) {
			return mutatingwebhook.NewMutatingWebhook(configuration)
		}, objects.MutatingWebhooks)),
		"ValidatingAdmissionWebhook": validatingExtension{lazy("ValidatingAdmissionWebhook", func(configuration io.Reader) (admission.Interface, error) {
			return validatingwebhook.NewValidatingAdmissionWebhook(configuration)
		}, objects.ValidatingWebhooks)},
		"MutatingAdmissionPolicy": mutatingPolicyExtension{mutatingExtension{lazy("MutatingAdmissionPolicy", func(configuration io.Reader) (admission.Interface, error) {
			return mutatingpolicy.NewPlugin(configuration)
		}, objects.MutatingPolicies, objects.MutatingPolicyBindings)}},
		"ValidatingAdmissionPolicy": validatingExtension{lazy("ValidatingAdmissionPolicy", func(configuration io.Reader) (admission.Interface, error) {
			return validatingpolicy.NewPlugin(configuration)
		}, objects.ValidatingPolicies, objects.ValidatingPolicyBindings)},
	}
}

// extension is a plugin that starts when it is first needed.
type extension struct {
	always
	ctx    context.Context
	name   string
	source objects.Source
	kinds  []string // the plugin is needed once each of them has an object
	// build makes the plugin. It gets nil if there is no configuration.
	build         func(configuration io.Reader) (admission.Interface, error)
	configuration Configuration
	access        func() (*Access, error)
	// metrics measures the plugin, if it is set.
	metrics *metrics.Plugin

	plugin   atomic.Pointer[admission.Interface] // nil until it has started
	starting chan struct{}                       // a semaphore of one for starting
}

// get returns the plugin, or nil while it is not needed. The first caller that
// needs it starts it. Other callers wait for that until ctx ends.
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
	if e.configuration.manifests != "" {
		return true
	}
	for _, path := range e.kinds {
		if kind := e.source.Kind(path); kind == nil || kind.Len() == 0 {
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
	var configuration io.Reader
	if len(e.configuration.raw) > 0 {
		configuration = bytes.NewReader(e.configuration.raw)
	}
	celamount.Bound()
	plugin, err := e.build(configuration)
	if err != nil {
		return nil, err
	}
	initializer.New(access.Kubernetes, access.Dynamic, access.Informers, access.Authorizer,
		utilfeature.DefaultFeatureGate, access.Version, e.ctx.Done(), access.Mapper).Initialize(plugin)
	if excluding, ok := plugin.(initializer.WantsExcludedAdmissionResources); ok {
		excluding.SetExcludedAdmissionResources(definitions.Excluded())
	}
	if loading, ok := plugin.(initializer.WantsManifestLoaders); ok {
		loading.SetManifestLoaders(manifestLoaders())
	}
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

// recoverPanic turns a panic of a plugin into an internal error. Some JSON
// patches that users write or webhooks return make the libraries panic.
func (e *extension) recoverPanic(ctx context.Context, err *error) {
	reason := recover()
	if reason == nil {
		return
	}
	if reason == http.ErrAbortHandler { //nolint:errorlint // the sentinel of net/http
		panic(reason) // ends the request; a return without an error would admit the write
	}
	// Count it for the server's component: in one process, ctx may belong to
	// another one.
	supervise.RecordPanic(klog.NewContext(e.ctx, klog.FromContext(ctx)), fmt.Errorf("admission plugin %s: %w", e.name, &supervise.Panic{Value: reason, Stack: debug.Stack()}))
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
	defer e.recoverPanic(ctx, &err)
	return m.Admit(ctx, a, o)
}

// mutatingPolicyExtension waits for the schemas of the kinds that policies
// change. The library reads the list of schemas in the background when it
// starts, and every five seconds after. Until then it refuses writes of kinds
// that the list lacks as unavailable: writes of all kinds right after the first
// policy, and writes of custom resources right after their definition.
type mutatingPolicyExtension struct{ mutatingExtension }

// schemasRead bounds the time until the library has read the list of schemas
// once more.
const schemasRead = 6 * time.Second

func (e mutatingPolicyExtension) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	err := e.mutatingExtension.Admit(ctx, a, o)
	if !apierrors.IsServiceUnavailable(err) || a.GetOperation() == admission.Connect { // the options of connections have no schemas
		return err
	}
	again := wait.Backoff{Duration: 5 * time.Millisecond, Factor: 2, Steps: math.MaxInt32, Cap: time.Second / 2}
	limit := time.NewTimer(schemasRead)
	defer limit.Stop()
	for apierrors.IsServiceUnavailable(err) {
		select {
		case <-ctx.Done():
			return err
		case <-limit.C:
			return err
		case <-time.After(again.Step()):
			err = e.mutatingExtension.Admit(ctx, a, o)
		}
	}
	return err
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
	defer e.recoverPanic(ctx, &err)
	return v.Validate(ctx, a, o)
}
