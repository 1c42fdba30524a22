package admission

import (
	"context"
	"errors"
	"slices"
	"sync"

	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/warning"
	podsecurity "k8s.io/pod-security-admission/admission"
	"k8s.io/pod-security-admission/admission/api"
	psapi "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/metrics"
	"k8s.io/pod-security-admission/policy"

	"github.com/coracle-io/coracle/internal/apiserver/objects"
)

// podSecurity enforces the Pod Security Standards of a namespace's labels.
type podSecurity struct {
	onWrite
	library func() *podsecurity.Admission
	// byDefault means that namespaces without labels are restricted, too.
	byDefault  bool
	namespaces objects.Reader[*corev1.Namespace]
}

// appliesTo reports whether the plugin checks a resource: pods, objects with
// pod templates, and namespaces, whose labels select the standard.
func appliesTo(r schema.GroupResource) bool {
	switch r.Group {
	case corev1.GroupName:
		return slices.Contains([]string{"namespaces", "pods", "replicationcontrollers", "podtemplates"}, r.Resource)
	case appsv1.GroupName:
		return slices.Contains([]string{"replicasets", "deployments", "statefulsets", "daemonsets"}, r.Resource)
	case batchv1.GroupName:
		return r.Resource == "jobs" || r.Resource == "cronjobs"
	}
	return false
}

func newPodSecurity(c *Config) admission.Interface {
	configuration := c.PodSecurity
	if configuration == nil {
		configuration = &api.PodSecurityConfiguration{Defaults: api.PodSecurityDefaults{
			Enforce: "privileged", EnforceVersion: "latest", Audit: "privileged", AuditVersion: "latest", Warn: "privileged", WarnVersion: "latest"}}
	}
	d := configuration.Defaults
	p := &podSecurity{
		namespaces: objects.Of[*corev1.Namespace](c.Objects, objects.Namespaces),
		byDefault:  d.Enforce != "privileged" || d.Audit != "privileged" || d.Warn != "privileged",
	}
	// The checks are only built once a namespace needs them.
	p.library = sync.OnceValue(func() *podsecurity.Admission {
		return newPodSecurityLibrary(configuration, p.namespaces, objects.Of[*corev1.Pod](c.Objects, objects.Pods))
	})
	return p
}

func newPodSecurityLibrary(configuration *api.PodSecurityConfiguration, namespaces objects.Reader[*corev1.Namespace], pods objects.Reader[*corev1.Pod]) *podsecurity.Admission {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		panic(err) // cannot happen with the library's own checks
	}
	library := &podsecurity.Admission{
		Configuration:    configuration,
		Evaluator:        evaluator,
		Metrics:          metrics.NewPrometheusRecorder(psapi.GetAPIVersion()),
		PodSpecExtractor: podsecurity.DefaultPodSpecExtractor{},
		NamespaceGetter:  namespaceGetter(namespaces),
		PodLister:        podLister(pods),
	}
	if err := errors.Join(library.CompleteConfiguration(), library.ValidateConfiguration()); err != nil {
		panic(err) // the configuration was validated before
	}
	return library
}

func (p *podSecurity) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if !appliesTo(a.GetResource().GroupResource()) || p.unrestricted(a) {
		return nil
	}
	response := p.library().Validate(ctx, &psapi.AttributesRecord{
		Name: a.GetName(), Namespace: a.GetNamespace(), Kind: a.GetKind(), Resource: a.GetResource(), Subresource: a.GetSubresource(),
		Operation: admissionv1.Operation(a.GetOperation()), Object: a.GetObject(), OldObject: a.GetOldObject(), Username: userName(a),
	})
	for _, w := range response.Warnings {
		warning.AddWarning(ctx, "", w)
	}
	for k, v := range response.AuditAnnotations {
		if err := a.AddAnnotation("pod-security.kubernetes.io/"+k, v); err != nil {
			return err
		}
	}
	if response.Allowed {
		return nil
	}
	if result := response.Result; result != nil {
		return &apierrors.StatusError{ErrStatus: *result}
	}
	return refused(a, "denied by Pod Security")
}

// unrestricted reports whether the namespace has no labels for the plugin, as
// most.
func (p *podSecurity) unrestricted(a admission.Attributes) bool {
	if p.byDefault || a.GetNamespace() == "" || a.GetResource().Resource == "namespaces" {
		return false
	}
	ns, ok := p.namespaces.Get("", a.GetNamespace())
	if !ok {
		return false
	}
	for _, label := range []string{psapi.EnforceLevelLabel, psapi.AuditLevelLabel, psapi.WarnLevelLabel} {
		if _, set := ns.Labels[label]; set {
			return false
		}
	}
	return true
}

func userName(a admission.Attributes) string {
	if a.GetUserInfo() == nil {
		return ""
	}
	return a.GetUserInfo().GetName()
}

type namespaceGetter objects.Reader[*corev1.Namespace]

func (g namespaceGetter) GetNamespace(_ context.Context, name string) (*corev1.Namespace, error) {
	ns, ok := objects.Reader[*corev1.Namespace](g).Get("", name)
	if !ok {
		return nil, apierrors.NewNotFound(corev1.Resource("namespaces"), name)
	}
	return ns, nil
}

type podLister objects.Reader[*corev1.Pod]

func (l podLister) ListPods(_ context.Context, namespace string) ([]*corev1.Pod, error) {
	var pods []*corev1.Pod
	for p := range objects.Reader[*corev1.Pod](l).All(namespace) {
		pods = append(pods, p)
	}
	return pods, nil
}
