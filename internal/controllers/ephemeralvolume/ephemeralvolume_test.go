package ephemeralvolume

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/coracle-io/coracle/internal/controller/controllertest"
	"github.com/coracle-io/coracle/internal/leaktest"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Run(m)) }

func pod(name string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
		Spec: v1.PodSpec{Volumes: []v1.Volume{{Name: "plain"}, {Name: "scratch", VolumeSource: v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{
			VolumeClaimTemplate: &v1.PersistentVolumeClaimTemplate{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}},
				Spec:       v1.PersistentVolumeClaimSpec{AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}},
			},
		}}}}},
	}
}

func TestClaimsAreCreated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := controllertest.New(t, pod("web"), pod("taken"), &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "taken-scratch"}})
		registry := prometheus.NewRegistry()
		c.Env.Metrics = registry
		c.Run(Descriptor())
		synctest.Wait()
		api := c.Fake.CoreV1().PersistentVolumeClaims("shop")
		made := func() string {
			claim, err := api.Get(context.Background(), "web-scratch", metav1.GetOptions{})
			if err != nil {
				return err.Error()
			}
			return claim.Labels["a"] + " " + string(claim.Spec.AccessModes[0]) + " " + metav1.GetControllerOf(claim).Name
		}
		controllertest.Eventually(t, made, "b ReadWriteOnce web")
		if err := api.Delete(context.Background(), "web-scratch", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		controllertest.Eventually(t, made, "b ReadWriteOnce web")
		var events string
		controllertest.Eventually(t, func() bool {
			events += strings.Join(c.DrainEvents(), "\n")
			return strings.Contains(events, `Warning FailedBinding ephemeral volume scratch: PVC`)
		}, true)
		err := testutil.GatherAndCompare(registry, strings.NewReader(`# HELP ephemeral_volume_controller_create_failures_total [ALPHA] Number of PersistentVolumeClaim creation request failures
# TYPE ephemeral_volume_controller_create_failures_total counter
ephemeral_volume_controller_create_failures_total 0
# HELP ephemeral_volume_controller_create_total [ALPHA] Number of PersistentVolumeClaim creation requests
# TYPE ephemeral_volume_controller_create_total counter
ephemeral_volume_controller_create_total 2
`))
		if err != nil {
			t.Error(err)
		}
	})
}

// A claim belongs to its pod alone, which deletes it. No claim is made for a pod that is
// being deleted, and one of another namespace is none of the pod's.
func TestWhichClaimsAreCreated(t *testing.T) {
	claim := func(namespace, name string) *v1.PersistentVolumeClaim {
		return &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	}
	deleted, plain := pod("web"), pod("web")
	deleted.DeletionTimestamp, plain.Spec.Volumes = new(metav1.Now()), plain.Spec.Volumes[:1]
	for name, test := range map[string]struct {
		objects   []runtime.Object
		conflicts bool
		claims    int // in the namespace of the pod, at the end
		created   bool
		event     string
	}{
		"a pod":                         {[]runtime.Object{pod("web")}, false, 1, true, ""},
		"a pod that is being deleted":   {[]runtime.Object{deleted}, false, 0, false, ""},
		"no ephemeral volumes":          {[]runtime.Object{plain}, false, 0, false, ""},
		"a claim of another namespace":  {[]runtime.Object{pod("web"), claim("other", "web-scratch")}, false, 1, true, ""},
		"a claim that is not the pod's": {[]runtime.Object{pod("web"), claim("shop", "web-scratch")}, false, 1, false, `ephemeral volume scratch: PVC shop/web-scratch was not created for pod shop/web (pod is not owner)`},
		"a claim that cannot be made":   {[]runtime.Object{pod("web")}, true, 0, false, "ephemeral volume scratch: create PVC web-scratch: "},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := controllertest.New(t, test.objects...)
				c.Fake.PrependReactor("create", "persistentvolumeclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
					return test.conflicts, nil, apierrors.NewConflict(v1.Resource("persistentvolumeclaims"), "web-scratch", errors.New("it is being made"))
				})
				c.Run(Descriptor())
				synctest.Wait()
				list, err := c.Fake.CoreV1().PersistentVolumeClaims("shop").List(t.Context(), metav1.ListOptions{})
				if err != nil || len(list.Items) != test.claims {
					t.Fatalf("%d claims (%v), want %d", len(list.Items), err, test.claims)
				}
				if test.created {
					owner := metav1.GetControllerOf(&list.Items[0])
					if owner == nil || owner.Kind != "Pod" || owner.Name != "web" || owner.BlockOwnerDeletion == nil || !*owner.BlockOwnerDeletion {
						t.Errorf("the owner of the claim is %+v", owner)
					}
				}
				events := c.DrainEvents()
				if test.event == "" && len(events) > 0 || test.event != "" && (len(events) == 0 || !strings.HasPrefix(events[0], "Warning FailedBinding "+test.event)) {
					t.Errorf("events %q, want %q", events, test.event)
				}
			})
		})
	}
}
