package clientgo

import (
	"fmt"
	"sync"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
)

// TestApplyExtractApply applies the fields of a manager, extracts them from the
// object, changes them and applies them again.
func TestApplyExtractApply(t *testing.T) {
	ctx, c := t.Context(), newClient(t)
	ns := newNamespace(t, c)
	all := c.AppsV1().Deployments(ns)
	owner := metav1.ApplyOptions{FieldManager: "owner", Force: true}
	labels := map[string]string{"app": "web"}
	container := func(name string) *corev1ac.ContainerApplyConfiguration {
		return corev1ac.Container().WithName(name).WithImage("registry.example/" + name + ":1")
	}
	d, err := all.Apply(ctx, appsv1ac.Deployment("web", ns).WithLabels(labels).WithSpec(appsv1ac.DeploymentSpec().
		WithReplicas(0).
		WithSelector(metav1ac.LabelSelector().WithMatchLabels(labels)).
		WithTemplate(corev1ac.PodTemplateSpec().WithLabels(labels).WithSpec(corev1ac.PodSpec().WithContainers(container("app"), container("side"))))), owner)
	must(t, err)

	d, err = all.Patch(ctx, d.Name, types.MergePatchType, []byte(`{"metadata":{"annotations":{"by":"another"}}}`), metav1.PatchOptions{FieldManager: "another"})
	must(t, err)
	owned, err := appsv1ac.ExtractDeployment(d, "owner")
	must(t, err)
	if owned.Annotations != nil || owned.Labels["app"] != "web" || len(owned.Spec.Template.Spec.Containers) != 2 || owned.Spec.Strategy != nil {
		t.Errorf("extracted: %+v", owned)
	}
	owned.Spec.Template.Spec.Containers = owned.Spec.Template.Spec.Containers[:1]
	owned.Labels = nil
	d, err = all.Apply(ctx, owned, owner)
	must(t, err)
	if len(d.Spec.Template.Spec.Containers) != 1 || d.Spec.Template.Spec.Containers[0].Name != "app" || d.Labels != nil || d.Annotations["by"] != "another" {
		t.Errorf("after fields were removed from the configuration: labels %v, annotations %v, containers %v", d.Labels, d.Annotations, d.Spec.Template.Spec.Containers)
	}
	_, err = all.Apply(ctx, appsv1ac.Deployment("web", ns).WithAnnotations(map[string]string{"by": "owner"}), metav1.ApplyOptions{FieldManager: "third"})
	if !apierrors.IsConflict(err) {
		t.Fatalf("apply of another's annotation: %v, want Conflict", err)
	}
	causes := err.(apierrors.APIStatus).Status().Details.Causes
	if len(causes) != 1 || causes[0].Type != metav1.CauseTypeFieldManagerConflict || causes[0].Message != `conflict with "another" using apps/v1` {
		t.Errorf("causes: %+v", causes)
	}

	status, err := all.ApplyStatus(ctx, appsv1ac.Deployment("web", ns).WithStatus(appsv1ac.DeploymentStatus().WithConditions(
		appsv1ac.DeploymentCondition().WithType("Example").WithStatus(corev1.ConditionTrue).WithReason("Applied").WithMessage("").
			WithLastUpdateTime(metav1.Now()).WithLastTransitionTime(metav1.Now()))), owner)
	must(t, err)
	extracted, err := appsv1ac.ExtractDeploymentStatus(status, "owner")
	must(t, err)
	if extracted.Status == nil || len(extracted.Status.Conditions) != 1 {
		t.Errorf("extracted status: %+v", extracted.Status)
	}
}

// TestRetryOnConflict checks that no increment is lost when several writers
// count in one object.
func TestRetryOnConflict(t *testing.T) {
	ctx, c := t.Context(), newClient(t)
	maps := c.CoreV1().ConfigMaps(newNamespace(t, c))
	_, err := maps.Create(ctx, configMap("counter", map[string]string{}), metav1.CreateOptions{})
	must(t, err)
	const writers, each = 4, 5
	patient := retry.DefaultBackoff
	patient.Steps = 50
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				err := retry.RetryOnConflict(patient, func() error {
					cm, err := maps.Get(ctx, "counter", metav1.GetOptions{})
					if err != nil {
						return err
					}
					if cm.Data == nil {
						cm.Data = map[string]string{}
					}
					cm.Data[fmt.Sprintf("%d-%d", w, i)] = "counted"
					_, err = maps.Update(ctx, cm, metav1.UpdateOptions{})
					return err
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	cm, err := maps.Get(ctx, "counter", metav1.GetOptions{})
	must(t, err)
	if len(cm.Data) != writers*each {
		t.Errorf("%d of %d writes were stored", len(cm.Data), writers*each)
	}
}

// warnings records the server's warnings.
type warnings struct{ texts []string }

func (w *warnings) HandleWarningHeader(code int, _ string, text string) {
	if code == 299 {
		w.texts = append(w.texts, text)
	}
}

func TestWarningsAndImpersonation(t *testing.T) {
	ctx, c := t.Context(), newClient(t)
	ns := newNamespace(t, c)
	var received warnings
	config := rest.CopyConfig(restConfig)
	config.WarningHandler = &received
	_, err := newClientFor(t, config).CoreV1().Endpoints(ns).List(ctx, metav1.ListOptions{})
	must(t, err)
	if len(received.texts) != 1 || received.texts[0] != "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice" {
		t.Errorf("warnings: %q", received.texts)
	}

	config = rest.CopyConfig(restConfig)
	config.Impersonate = rest.ImpersonationConfig{UserName: "jane", UID: "7", Groups: []string{"dev"}, Extra: map[string][]string{"scope": {"a", "b"}}}
	jane := newClientFor(t, config)
	_, err = jane.CoreV1().Secrets(ns).List(ctx, metav1.ListOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("jane reads secrets: %v, want Forbidden", err)
	}
	review, err := jane.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	must(t, err)
	who := review.Status.UserInfo
	if got, want := fmt.Sprint(who.Username, who.UID, who.Groups, who.Extra), "jane7[dev system:authenticated] map[scope:[a b]]"; got != want {
		t.Errorf("jane is %s, want %s", got, want)
	}
}
