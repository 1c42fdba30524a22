package policystatus

import (
	"context"
	"encoding/json"
	"os"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/controller/controllertest"
	"github.com/coracle-io/coracle/internal/leaktest"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Run(m)) }

// A policy is checked once for each generation.
func TestWritesWarnings(t *testing.T) {
	c := controllertest.New(t,
		&admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "new", Generation: 2}, Status: admissionv1.ValidatingAdmissionPolicyStatus{ObservedGeneration: 1}},
		&admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "done", Generation: 2}, Status: admissionv1.ValidatingAdmissionPolicyStatus{ObservedGeneration: 2}},
	)
	applied := make(chan string, 10)
	c.Fake.PrependReactor("patch", "validatingadmissionpolicies", func(a clienttesting.Action) (bool, runtime.Object, error) {
		p := a.(clienttesting.PatchAction)
		var sent admissionv1.ValidatingAdmissionPolicy
		if err := json.Unmarshal(p.GetPatch(), &sent); err != nil {
			t.Error(err)
		}
		status, err := json.Marshal(sent.Status)
		if err != nil {
			t.Error(err)
		}
		applied <- p.GetName() + " " + p.GetSubresource() + " " + string(status)
		return true, &sent, nil
	})
	check := func(*admissionv1.ValidatingAdmissionPolicy) []admissionv1.ExpressionWarning {
		return []admissionv1.ExpressionWarning{{FieldRef: "spec.validations[0].expression", Warning: "w"}}
	}
	c.Run(controller.Descriptor{New: func(env *controller.Env) (controller.Controller, error) { return newChecker(env, 5, check), nil }})
	const want = `new status {"observedGeneration":2,"typeChecking":{"expressionWarnings":[{"fieldRef":"spec.validations[0].expression","warning":"w"}]}}`
	if got := <-applied; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	policies, err := c.Fake.AdmissionregistrationV1().ValidatingAdmissionPolicies().List(context.Background(), metav1.ListOptions{})
	if err != nil || len(policies.Items) != 2 {
		t.Fatal(policies, err)
	}
	if len(applied) > 0 {
		t.Errorf("unexpected second write %s", <-applied)
	}
}
