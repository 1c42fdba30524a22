package replication_test

import (
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/coracle-io/coracle/internal/controller/controllertest"
	"github.com/coracle-io/coracle/internal/controllers/replication"
	"github.com/coracle-io/coracle/internal/leaktest"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Run(m)) }

func replicationController(replicas int32) *v1.ReplicationController {
	labels := map[string]string{"app": "web"}
	return &v1.ReplicationController{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", Generation: 1},
		Spec: v1.ReplicationControllerSpec{
			Replicas: &replicas, Selector: labels, Template: &v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}},
		},
	}
}

// A ReplicationController that exceeds a quota has the condition ReplicaFailure until it asks for
// no more pods than it has.
func TestExceededQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := controllertest.New(t, replicationController(3))
		const allowed = 2
		created := 0
		c.Fake.PrependReactor("create", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			created++
			if created <= allowed {
				return false, nil, nil
			}
			return true, nil, apierrors.NewForbidden(v1.Resource("pods"), "", errors.New("exceeded quota"))
		})
		c.Run(replication.Descriptor())
		api := c.Fake.CoreV1().ReplicationControllers("default")
		conditions := func() string {
			rc, err := api.Get(t.Context(), "web", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			var all []string
			for _, condition := range rc.Status.Conditions {
				all = append(all, string(condition.Type)+" "+string(condition.Status)+" "+condition.Reason+": "+condition.Message)
			}
			return strings.Join(all, ", ")
		}
		controllertest.Eventually(t, conditions, "ReplicaFailure True FailedCreate: pods is forbidden: exceeded quota")
		rc, err := api.Get(t.Context(), "web", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		rc.Spec.Replicas = new(int32(allowed))
		if _, err := api.Update(t.Context(), rc, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		controllertest.Eventually(t, conditions, "")
		if n := len(c.Pods("default")); n != allowed {
			t.Errorf("%d pods, want %d", n, allowed)
		}
	})
}

// A ReplicationController adopts pods with its labels, and creates the others.
func TestAdoption(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		orphan := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "orphan", Labels: map[string]string{"app": "web"}}}
		c := controllertest.New(t, replicationController(2), orphan)
		c.Run(replication.Descriptor())
		controllertest.Eventually(t, func() int {
			owned := 0
			for _, p := range c.Pods("default") {
				if ref := metav1.GetControllerOf(&p); ref != nil && ref.Kind == "ReplicationController" && ref.Name == "web" {
					owned++
				}
			}
			return owned
		}, 2)
		if n := len(c.Pods("default")); n != 2 {
			t.Errorf("%d pods, want the orphan and one more", n)
		}
	})
}
