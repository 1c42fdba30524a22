package controllerruntime

import (
	"context"
	"fmt"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// webhookLabel marks the namespaces whose ConfigMaps the webhooks see.
const webhookLabel = "clients.example.com/webhooks"

// webhooks returns the configurations of configMapRules. envtest turns their
// Services into URLs of this process.
func webhooks() envtest.WebhookInstallOptions {
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{webhookLabel: "yes"}}
	clientConfig := func(path string) admissionregistrationv1.WebhookClientConfig {
		return admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{
			Namespace: metav1.NamespaceDefault, Name: "webhook", Path: ptr.To(path),
		}}
	}
	rules := func(operations ...admissionregistrationv1.OperationType) []admissionregistrationv1.RuleWithOperations {
		return []admissionregistrationv1.RuleWithOperations{{
			Operations: operations,
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
		}}
	}
	return envtest.WebhookInstallOptions{
		MutatingWebhooks: []*admissionregistrationv1.MutatingWebhookConfiguration{{
			ObjectMeta: metav1.ObjectMeta{Name: "clients-defaults"},
			Webhooks: []admissionregistrationv1.MutatingWebhook{{
				Name: "defaults.clients.example.com", ClientConfig: clientConfig("mutate--v1-configmap"),
				Rules:             rules(admissionregistrationv1.Create, admissionregistrationv1.Update),
				NamespaceSelector: selector, SideEffects: ptr.To(admissionregistrationv1.SideEffectClassNone),
				AdmissionReviewVersions: []string{"v1"},
			}},
		}},
		ValidatingWebhooks: []*admissionregistrationv1.ValidatingWebhookConfiguration{{
			ObjectMeta: metav1.ObjectMeta{Name: "clients-rules"},
			Webhooks: []admissionregistrationv1.ValidatingWebhook{{
				Name: "rules.clients.example.com", ClientConfig: clientConfig("validate--v1-configmap"),
				Rules:             rules(admissionregistrationv1.OperationAll),
				NamespaceSelector: selector, SideEffects: ptr.To(admissionregistrationv1.SideEffectClassNone),
				AdmissionReviewVersions: []string{"v1"},
				MatchConditions: []admissionregistrationv1.MatchCondition{{
					Name: "not-the-clusters-own", Expression: "request.name != 'kube-root-ca.crt'",
				}},
			}},
		}},
	}
}

// configMapRules sets a default colour on ConfigMaps, rejects black ones with a
// field error, warns about red ones, rejects changes of the colour, and rejects
// the deletion of those with the label keep.
type configMapRules struct{}

func (configMapRules) Default(_ context.Context, cm *corev1.ConfigMap) error {
	if cm.Data["colour"] == "" {
		if cm.Data == nil {
			cm.Data = map[string]string{}
		}
		cm.Data["colour"] = "blue"
	}
	return nil
}

func (configMapRules) ValidateCreate(_ context.Context, cm *corev1.ConfigMap) (admission.Warnings, error) {
	switch cm.Data["colour"] {
	case "black":
		return nil, apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("ConfigMap").GroupKind(), cm.Name,
			field.ErrorList{field.Invalid(field.NewPath("data").Key("colour"), "black", "too dark")})
	case "red":
		return admission.Warnings{"red is loud"}, nil
	}
	return nil, nil
}

func (configMapRules) ValidateUpdate(_ context.Context, before, after *corev1.ConfigMap) (admission.Warnings, error) {
	if before.Data["colour"] != after.Data["colour"] {
		return nil, fmt.Errorf("the colour is %s and cannot be changed", before.Data["colour"])
	}
	return nil, nil
}

func (configMapRules) ValidateDelete(_ context.Context, cm *corev1.ConfigMap) (admission.Warnings, error) {
	if cm.Labels["keep"] == "yes" {
		return nil, fmt.Errorf("%s is kept", cm.Name)
	}
	return nil, nil
}

// warnings collects the API server's warnings.
type warnings []string

func (w *warnings) HandleWarningHeaderWithContext(_ context.Context, _ int, _, text string) {
	*w = append(*w, text)
}

func TestWebhooks(t *testing.T) {
	ctx := t.Context()
	installed := environment.WebhookInstallOptions
	mgr := newManager(t, manager.Options{WebhookServer: webhook.NewServer(webhook.Options{
		Host: installed.LocalServingHost, Port: installed.LocalServingPort, CertDir: installed.LocalServingCertDir,
	})})
	must(t, ctrl.NewWebhookManagedBy(mgr, &corev1.ConfigMap{}).
		WithDefaulter(configMapRules{}).WithValidator(configMapRules{}).Complete())
	start(t, mgr)
	eventually(t, "the webhook server", func(context.Context) error { return mgr.GetWebhookServer().StartedChecker()(nil) })

	var warned warnings
	warning := rest.CopyConfig(restConfig)
	warning.WarningHandlerWithContext = &warned
	c, err := client.New(warning, client.Options{Scheme: newScheme(t)})
	must(t, err)
	ns := newNamespace(t, c, map[string]string{webhookLabel: "yes"})
	eventually(t, "the webhooks' first call", func(ctx context.Context) error {
		cm := configMap(ns, "seen", nil)
		if err := c.Create(ctx, cm, client.DryRunAll); err != nil {
			return err
		}
		if cm.Data["colour"] != "blue" {
			return fmt.Errorf("no colour: the API server has not seen the configuration yet")
		}
		return nil
	})

	cm := configMap(ns, "plain", nil)
	must(t, c.Create(ctx, cm))
	if cm.Data["colour"] != "blue" {
		t.Errorf("the mutating webhook set the colour %q", cm.Data["colour"])
	}

	warned = nil
	red := configMap(ns, "red", map[string]string{"colour": "red"})
	red.Labels = map[string]string{"keep": "yes"}
	must(t, c.Create(ctx, red))
	if len(warned) != 1 || warned[0] != "red is loud" {
		t.Errorf("warnings %q, want red is loud", warned)
	}

	err = c.Create(ctx, configMap(ns, "black", map[string]string{"colour": "black"}))
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), `admission webhook "rules.clients.example.com" denied the request`) {
		t.Errorf("a black ConfigMap: %v, want Invalid from the webhook", err)
	} else if causes := err.(apierrors.APIStatus).Status().Details.Causes; len(causes) != 1 || causes[0].Field != "data[colour]" {
		t.Errorf("its causes: %v, want data[colour]", causes)
	}

	red.Data["colour"] = "green"
	want := `admission webhook "rules.clients.example.com" denied the request: the colour is red and cannot be changed`
	if err := c.Update(ctx, red); !apierrors.IsForbidden(err) || err.Error() != want {
		t.Errorf("another colour: %v, want Forbidden: %s", err, want)
	}
	if err := c.Delete(ctx, red); !apierrors.IsForbidden(err) {
		t.Errorf("delete of a kept ConfigMap: %v, want Forbidden", err)
	}
	before := red.DeepCopy()
	red.Labels, red.Data = nil, before.Data
	must(t, c.Patch(ctx, red, client.RawPatch(client.Merge.Type(), []byte(`{"metadata":{"labels":{"keep":null}}}`))))
	must(t, c.Delete(ctx, red))

	elsewhere := configMap(newNamespace(t, c, nil), "black", map[string]string{"colour": "black"})
	must(t, c.Create(ctx, elsewhere))
}
