package selinuxwarning

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/coracle-io/coracle/internal/controller"
	"github.com/coracle-io/coracle/internal/controller/controllertest"
	"github.com/coracle-io/coracle/internal/leaktest"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Run(m)) }

// pod returns a pod with a level that mounts a claim.
func pod(name, level string, change ...func(*v1.Pod)) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	p.Spec.SecurityContext = &v1.PodSecurityContext{}
	if level != "" {
		p.Spec.SecurityContext.SELinuxOptions = &v1.SELinuxOptions{Level: level}
	}
	p.Spec.Containers = []v1.Container{{Name: "main", VolumeMounts: []v1.VolumeMount{{Name: "data", MountPath: "/data"}}}}
	p.Spec.Volumes = []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "claim"}}}}
	for _, f := range change {
		f(p)
	}
	return p
}

func policy(p v1.PodSELinuxChangePolicy) func(*v1.Pod) {
	return func(pod *v1.Pod) { pod.Spec.SecurityContext.SELinuxChangePolicy = &p }
}

// typed returns a change that gives a pod a type of SELinux.
func typed(kind string) func(*v1.Pod) {
	return func(pod *v1.Pod) {
		if pod.Spec.SecurityContext.SELinuxOptions == nil {
			pod.Spec.SecurityContext.SELinuxOptions = &v1.SELinuxOptions{}
		}
		pod.Spec.SecurityContext.SELinuxOptions.Type = kind
	}
}

// storage returns a bound claim, its volume, and the driver.
func storage(mounts bool) []runtime.Object {
	volume := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "volume"}}
	volume.Spec.ClaimRef = &v1.ObjectReference{Namespace: "default", Name: "claim", UID: "uid"}
	volume.Spec.CSI = &v1.CSIPersistentVolumeSource{Driver: "driver.test", VolumeHandle: "handle"}
	return []runtime.Object{volume,
		&v1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "claim", UID: "uid"}, Spec: v1.PersistentVolumeClaimSpec{VolumeName: "volume"},
			Status: v1.PersistentVolumeClaimStatus{Phase: v1.ClaimBound},
		},
		&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "driver.test"}, Spec: storagev1.CSIDriverSpec{SELinuxMount: &mounts}},
	}
}

const tail = ". If both pods land on the same node, only one of them may access the volume."

func TestConflicts(t *testing.T) {
	label := func(own, other, value, otherValue string) string {
		return "Normal SELinuxLabelConflict SELinuxLabel \"" + value + "\" conflicts with pod " + other + " that uses the same volume as this pod with SELinuxLabel \"" + otherValue + "\"" + tail
	}
	change := func(other, value, otherValue string) string {
		return "Normal SELinuxChangePolicyConflict SELinuxChangePolicy \"" + value + "\" conflicts with pod " + other + " that uses the same volume as this pod with SELinuxChangePolicy \"" + otherValue + "\"" + tail
	}
	for name, c := range map[string]struct {
		mounts bool
		pods   []runtime.Object
		want   []string
	}{
		"different labels": {true, []runtime.Object{pod("a", "s0:c1"), pod("b", "s0:c2")},
			[]string{label("a", "b", ":::s0:c1", ":::s0:c2"), label("b", "a", ":::s0:c2", ":::s0:c1")}},
		"the same label":        {true, []runtime.Object{pod("a", "s0:c1"), pod("b", "s0:c1")}, nil},
		"a driver without them": {false, []runtime.Object{pod("a", "s0:c1"), pod("b", "s0:c2")}, nil},
		"different policies": {true, []runtime.Object{pod("a", "s0:c1"), pod("b", "s0:c1", policy(v1.SELinuxChangePolicyRecursive))},
			[]string{change("b", "MountOption", "Recursive"), change("a", "Recursive", "MountOption"),
				label("a", "b", ":::s0:c1", ""), label("b", "a", "", ":::s0:c1")}},
		"files get their labels": {true, []runtime.Object{pod("a", "s0:c1", policy(v1.SELinuxChangePolicyRecursive)), pod("b", "s0:c2", policy(v1.SELinuxChangePolicyRecursive))}, nil},
		"no labels":              {true, []runtime.Object{pod("a", ""), pod("b", "")}, nil},
		"one label": {true, []runtime.Object{pod("a", "s0:c1"), pod("b", "")},
			[]string{change("b", "MountOption", "Recursive"), change("a", "Recursive", "MountOption"),
				label("a", "b", ":::s0:c1", ""), label("b", "a", "", ":::s0:c1")}},
		"a part that one lacks": {true, []runtime.Object{pod("a", "s0:c1"), pod("b", "s0:c1", typed("spc_t"))}, nil},
		"a level that one lacks": {true, []runtime.Object{pod("a", "s0:c1"), pod("b", "", typed("spc_t"))},
			[]string{label("a", "b", ":::s0:c1", "::spc_t:"), label("b", "a", "::spc_t:", ":::s0:c1")}},
		"different types": {true, []runtime.Object{pod("a", "s0:c1", typed("container_t")), pod("b", "s0:c1", typed("spc_t"))},
			[]string{label("a", "b", "::container_t:s0:c1", "::spc_t:s0:c1"), label("b", "a", "::spc_t:s0:c1", "::container_t:s0:c1")}},
		"another claim": {true, []runtime.Object{pod("a", "s0:c1"), pod("b", "s0:c2", func(p *v1.Pod) {
			p.Spec.Volumes[0].PersistentVolumeClaim.ClaimName = "missing"
		})}, nil},
		"a volume that is not mounted": {true, []runtime.Object{pod("a", "s0:c1"), pod("b", "s0:c2", func(p *v1.Pod) {
			p.Spec.Containers[0].VolumeMounts = nil
		})}, nil},
		"a pod that has ended": {true, []runtime.Object{pod("a", "s0:c1"), pod("b", "s0:c2", func(p *v1.Pod) { p.Status.Phase = v1.PodSucceeded })}, nil},
		"containers with different labels": {true, []runtime.Object{pod("a", "s0:c1", func(p *v1.Pod) {
			second := *p.Spec.Containers[0].DeepCopy()
			second.SecurityContext = &v1.SecurityContext{SELinuxOptions: &v1.SELinuxOptions{Level: "s0:c2"}}
			p.Spec.Containers = append(p.Spec.Containers, second)
		})}, []string{`Warning MultipleSELinuxLabels Volume "data" is mounted twice with different SELinux labels inside this pod`}},
	} {
		synctest.Test(t, func(t *testing.T) {
			cluster := controllertest.New(t, append(storage(c.mounts), c.pods...)...)
			cluster.Run(Descriptor())
			synctest.Wait()
			got, want := cluster.DrainEvents(), slices.Clone(c.want)
			slices.Sort(got)
			slices.Sort(want)
			if got = slices.Compact(got); !slices.Equal(got, want) {
				t.Errorf("%s:\n got %q\nwant %q", name, got, want)
			}
		})
	}
}

// A conflict appears when the driver can mount with labels, and ends with the pod.
func TestDriverChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := controllertest.New(t, append(storage(false), pod("a", "s0:c1"), pod("b", "s0:c2"))...)
		known := &uses{}
		d := Descriptor()
		d.New = func(env *controller.Env) (controller.Controller, error) { return newController(env, known) }
		c.Run(d)
		shown := func() int {
			synctest.Wait()
			return testutil.CollectAndCount(known)
		}
		if n := shown(); n != 0 {
			t.Errorf("%d conflicts of a driver without labels", n)
		}
		driver, err := c.Fake.StorageV1().CSIDrivers().Get(context.Background(), "driver.test", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		driver.Spec.SELinuxMount = new(true)
		if _, err := c.Fake.StorageV1().CSIDrivers().Update(context.Background(), driver, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		if n := shown(); n != 2 { // each pod's
			t.Errorf("%d conflicts, want 2", n)
		}
		if err := c.Fake.CoreV1().Pods("default").Delete(context.Background(), "a", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if n := shown(); n != 0 || len(known.pods) != 1 {
			t.Errorf("%d conflicts and %d pods after one was deleted", n, len(known.pods))
		}
	})
}

// The message for a pod does not name pods of other namespaces.
func TestMessageForAnotherNamespace(t *testing.T) {
	a, b := controller.Key{Namespace: "one", Name: "a"}, controller.Key{Namespace: "two", Name: "secret"}
	all := conflicts(a, use{v1.SELinuxOptions{Level: "s0:c1"}, v1.SELinuxChangePolicyMountOption}, b, use{v1.SELinuxOptions{Level: "s0:c2"}, v1.SELinuxChangePolicyMountOption})
	if len(all) != 1 || strings.Contains(all[0].message(), "secret") || !strings.HasPrefix(all[0].message(), `SELinuxLabel":::s0:c1" conflicts with another pod`) {
		t.Errorf("%v", all)
	}
}

// Pods that share several volumes have each conflict once, and it is told once.
func TestConflictsAreCountedOnce(t *testing.T) {
	known := &uses{}
	known.clear()
	set := func(name, level string, volumes ...v1.UniqueVolumeName) int {
		now := map[v1.UniqueVolumeName]use{}
		for _, volume := range volumes {
			now[volume] = use{v1.SELinuxOptions{Level: level}, v1.SELinuxChangePolicyMountOption}
		}
		return len(known.set(controller.Key{Namespace: "default", Name: name}, now))
	}
	for i, step := range []struct {
		name, level  string
		volumes      []v1.UniqueVolumeName
		found, shown int
	}{
		{"a", "s0:c1", []v1.UniqueVolumeName{"one", "two"}, 0, 0},
		{"b", "s0:c2", []v1.UniqueVolumeName{"one", "two"}, 4, 2},
		{"b", "s0:c2", []v1.UniqueVolumeName{"one", "two"}, 0, 2},
		{"c", "s0:c3", []v1.UniqueVolumeName{"one"}, 4, 6},
		{"d", "s0:c4", []v1.UniqueVolumeName{"three"}, 0, 6},
		{"a", "", nil, 0, 2},
		{"a", "", nil, 0, 2},
		{"b", "", nil, 0, 0},
		{"c", "", nil, 0, 0},
		{"d", "", nil, 0, 0},
	} {
		if found, shown := set(step.name, step.level, step.volumes...), testutil.CollectAndCount(known); found != step.found || shown != step.shown {
			t.Errorf("step %d: %d conflicts found, %d shown; want %d and %d", i, found, shown, step.found, step.shown)
		}
	}
	if len(known.volumes)+len(known.pods) != 0 {
		t.Errorf("left: %v, %v", known.volumes, known.pods)
	}
}
