package poddisruption_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	_ "github.com/coracle-io/coracle/internal/bubble"
	"github.com/coracle-io/coracle/internal/poddisruption"
	"github.com/coracle-io/coracle/internal/podquery"
)

func pod(uid types.UID, conditions ...v1.PodCondition) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: uid, Generation: 3},
		Status:     v1.PodStatus{Phase: v1.PodRunning, Conditions: conditions},
	}
}

func verbs(client *fake.Clientset) (verbs []string) {
	for _, a := range client.Actions() {
		verbs = append(verbs, a.GetVerb())
	}
	return verbs
}

// The condition keeps the time of its transition, and is written only if it
// changes.
func TestCondition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := metav1.Now()
		earlier := metav1.NewTime(now.Add(-time.Hour))
		had := func(status v1.ConditionStatus, reason string) v1.PodCondition {
			return v1.PodCondition{Type: v1.DisruptionTarget, Status: status, Reason: reason, Message: "m", ObservedGeneration: 3, LastTransitionTime: earlier}
		}
		ready := v1.PodCondition{Type: v1.PodReady, Status: v1.ConditionTrue, LastTransitionTime: earlier}
		for _, test := range []struct {
			about string
			has   []v1.PodCondition
			verbs []string
			since metav1.Time
		}{
			{"none before", []v1.PodCondition{ready}, []string{"patch", "delete"}, now},
			{"false before", []v1.PodCondition{had(v1.ConditionFalse, "r")}, []string{"patch", "delete"}, now},
			{"another reason", []v1.PodCondition{had(v1.ConditionTrue, "other"), ready}, []string{"patch", "delete"}, earlier},
			{"the same", []v1.PodCondition{had(v1.ConditionTrue, "r")}, []string{"delete"}, earlier},
		} {
			p := pod("u", test.has...)
			client := fake.NewSimpleClientset(p)
			var deleted *v1.Pod
			var options metav1.DeleteOptions
			client.PrependReactor("delete", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
				o, err := client.Tracker().Get(a.GetResource(), a.GetNamespace(), "p")
				if err == nil {
					deleted, options = o.(*v1.Pod), a.(clienttesting.DeleteAction).GetDeleteOptions()
				}
				return false, nil, err
			})
			found, err := poddisruption.Evict(t.Context(), client, p, "r", "m")
			if !found || err != nil || deleted == nil {
				t.Errorf("%s: found %v, error %v", test.about, found, err)
				continue
			}
			if got := verbs(client); !slices.Equal(got, test.verbs) {
				t.Errorf("%s: requests %v, want %v", test.about, got, test.verbs)
			}
			c := podquery.Condition(&deleted.Status, v1.DisruptionTarget)
			if c == nil || c.Status != v1.ConditionTrue || c.Reason != "r" || c.Message != "m" || c.ObservedGeneration != 3 || c.LastTransitionTime.Unix() != test.since.Unix() {
				t.Errorf("%s: condition %+v", test.about, c)
			}
			if options.GracePeriodSeconds != nil || options.Preconditions == nil || *options.Preconditions.UID != "u" {
				t.Errorf("%s: delete options %+v", test.about, options)
			}
		}
	})
}

// A pod that is gone or was replaced before the write is no error. Every other
// refusal is.
func TestGone(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	notFound, conflict := apierrors.NewNotFound(pods, "p"), apierrors.NewConflict(pods, "p", errors.New("it changed"))
	for _, test := range []struct {
		about   string
		current *v1.Pod // what the API has
		verb    string  // what the API refuses
		with    error
		verbs   []string
		failed  bool
	}{
		{"gone before the patch", nil, "patch", notFound, []string{"patch"}, false},
		{"replaced before the patch", pod("new"), "patch", conflict, []string{"patch", "list"}, false},
		{"gone after a conflict of the patch", nil, "patch", conflict, []string{"patch", "list"}, false},
		{"changed during the patch", pod("u"), "patch", conflict, []string{"patch", "list"}, true},
		{"patch refused", pod("u"), "patch", errors.New("refused"), []string{"patch"}, true},
		{"gone before the deletion", pod("u"), "delete", notFound, []string{"patch", "delete"}, false},
		{"replaced before the deletion", pod("new"), "delete", conflict, []string{"patch", "delete", "list"}, false},
		{"changed during the deletion", pod("u"), "delete", conflict, []string{"patch", "delete", "list"}, true},
		{"deletion refused", pod("u"), "delete", errors.New("refused"), []string{"patch", "delete"}, true},
	} {
		client := fake.NewSimpleClientset()
		if test.current != nil {
			client = fake.NewSimpleClientset(test.current)
		}
		client.PrependReactor("patch", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, pod("u"), nil })
		client.PrependReactor(test.verb, "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, test.with })
		found, err := poddisruption.Evict(t.Context(), client, pod("u"), "r", "m")
		if found || (err != nil) != test.failed {
			t.Errorf("%s: found %v, error %v", test.about, found, err)
		}
		if got := verbs(client); !slices.Equal(got, test.verbs) {
			t.Errorf("%s: requests %v, want %v", test.about, got, test.verbs)
		}
	}
}

// Delete writes a phase and takes options.
func TestDelete(t *testing.T) {
	for phase, want := range map[v1.PodPhase]string{v1.PodRunning: "[patch delete]", v1.PodFailed: "[delete]"} {
		p := pod("u")
		p.Status.Phase = phase
		client := fake.NewSimpleClientset(p)
		var grace *int64
		client.PrependReactor("delete", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
			o, err := client.Tracker().Get(a.GetResource(), a.GetNamespace(), "p")
			if err == nil && o.(*v1.Pod).Status.Phase != v1.PodFailed {
				t.Errorf("%s: deleted in phase %s", phase, o.(*v1.Pod).Status.Phase)
			}
			grace = a.(clienttesting.DeleteAction).GetDeleteOptions().GracePeriodSeconds
			return false, nil, err
		})
		if found, err := poddisruption.Delete(t.Context(), client, p, v1.PodStatus{Phase: v1.PodFailed}, *metav1.NewDeleteOptions(0)); !found || err != nil {
			t.Errorf("%s: found %v, error %v", phase, found, err)
		}
		if got := fmt.Sprint(verbs(client)); got != want || grace == nil || *grace != 0 {
			t.Errorf("%s: requests %s, want %s; grace period %v", phase, got, want, grace)
		}
	}
}
