package volumeprotection

import (
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"github.com/coracle-io/coracle/internal/controller/controllertest"
)

// A claim is protected while a pod on a node names it, also one that has ended.
func TestClaimInUseIsProtected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := metav1.Now()
		claim := func(name string, deleted *metav1.Time, finalizers ...string) *v1.PersistentVolumeClaim {
			return &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, DeletionTimestamp: deleted, Finalizers: finalizers}}
		}
		pod := func(name, node, claim string, phase v1.PodPhase) *v1.Pod {
			return &v1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
				Spec: v1.PodSpec{NodeName: node, Volumes: []v1.Volume{
					{Name: "e", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}},
					{Name: "v", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}},
				}},
				Status: v1.PodStatus{Phase: phase},
			}
		}
		c := controllertest.New(t, claim("ended", &now, claimFinalizer), claim("fresh", nil), claim("named", &now, claimFinalizer),
			claim("used", &now, claimFinalizer), claim("unused", &now, claimFinalizer, "other"),
			pod("user", "n", "used", v1.PodRunning), pod("failed", "n", "ended", v1.PodFailed), pod("unscheduled", "", "named", v1.PodPending))
		c.Run(Claims())
		finalizers := func() string {
			list, err := c.Fake.CoreV1().PersistentVolumeClaims("default").List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			out := ""
			for _, claim := range list.Items {
				out += fmt.Sprint(claim.Name, claim.Finalizers, " ")
			}
			return out
		}
		const held = "[kubernetes.io/pvc-protection] "
		controllertest.Eventually(t, finalizers, "ended"+held+"fresh"+held+"named[] unused[other] used"+held)
		if err := c.Fake.CoreV1().Pods("default").Delete(t.Context(), "user", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		controllertest.Eventually(t, finalizers, "ended"+held+"fresh"+held+"named[] unused[other] used[] ")
	})
}

// TestUnusedClaimIsReleased checks that a claim is released which a pod on a node
// names, but does not use: the claim of an ephemeral volume that was made for
// another pod, or whose pod has ended and only waits for its claims to go, as in
// foreground deletion.
func TestUnusedClaimIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now, zero, controls := metav1.Now(), int64(0), true
		claim := func(name string, owner types.UID) *v1.PersistentVolumeClaim {
			return &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
				Namespace: "default", Name: name, DeletionTimestamp: &now, Finalizers: []string{claimFinalizer},
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "p", UID: owner, Controller: &controls}},
			}}
		}
		pod := func(name string, uid types.UID) *v1.Pod {
			return &v1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: uid},
				Spec:       v1.PodSpec{NodeName: "n", Volumes: []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{}}}}},
			}
		}
		ended := pod("ended", "3")
		ended.DeletionTimestamp, ended.DeletionGracePeriodSeconds = &now, &zero
		ended.Finalizers = []string{metav1.FinalizerDeleteDependents}
		c := controllertest.New(t, claim("owner-v", "1"), claim("other-v", "1"), claim("ended-v", "3"), pod("owner", "1"), pod("other", "2"), ended)
		c.Run(Claims())
		controllertest.Eventually(t, func() string {
			list, err := c.Fake.CoreV1().PersistentVolumeClaims("default").List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			out := ""
			for _, claim := range list.Items {
				out += fmt.Sprint(claim.Name, claim.Finalizers, " ")
			}
			return out
		}, "ended-v[] other-v[] owner-v[kubernetes.io/pvc-protection] ")
	})
}

// Many claims that are deleted together cost one look at the pods of their namespace.
func TestClaimsAreReleasedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := metav1.Now()
		var claims []runtime.Object
		for i := range 100 {
			claims = append(claims, &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
				Namespace: "default", Name: fmt.Sprint("c", i), DeletionTimestamp: &now, Finalizers: []string{claimFinalizer},
			}})
		}
		c := controllertest.New(t, claims...)
		c.Run(Claims())
		controllertest.Eventually(t, func() (held int) {
			list, err := c.Fake.CoreV1().PersistentVolumeClaims("default").List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for _, claim := range list.Items {
				held += len(claim.Finalizers)
			}
			return held
		}, 0)
		lists := 0
		for _, action := range c.Fake.Actions() {
			if action.Matches("list", "pods") && action.GetNamespace() == "default" { // the informer reads all namespaces
				lists++
			}
		}
		if lists == 0 || lists > 10 {
			t.Errorf("the pods were read %d times for %d claims", lists, len(claims))
		}
	})
}

// A claim is released whose pod has been replaced by one of the same name, although the
// informer missed the deletion of the first. It is not released while a pod uses it that
// the informer does not show yet.
func TestClaimOfReplacedPodIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := metav1.Now()
		claim := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "data", DeletionTimestamp: &now, Finalizers: []string{claimFinalizer},
		}}
		user := &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "1"},
			Spec: v1.PodSpec{NodeName: "n", Volumes: []v1.Volume{{VolumeSource: v1.VolumeSource{
				PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
			}}}},
		}
		c := controllertest.New(t, claim, user)
		late := true // there is a pod that the informer, which reads all namespaces, does not show
		c.Fake.PrependReactor("list", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
			if a.GetNamespace() != "default" || !late {
				return false, nil, nil
			}
			return true, &v1.PodList{Items: []v1.Pod{*user}}, nil
		})
		c.Run(Claims())
		held := func() int {
			got, err := c.Fake.CoreV1().PersistentVolumeClaims("default").Get(t.Context(), "data", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return len(got.Finalizers)
		}
		version := 1000
		show := func(pod *v1.Pod) { // as an update
			t.Helper()
			synctest.Wait()
			version++
			pod.ResourceVersion = strconv.Itoa(version)
			if err := c.Fake.Tracker().Update(v1.SchemeGroupVersion.WithResource("pods"), pod, "default"); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		other := func(uid types.UID) *v1.Pod {
			return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: uid}}
		}
		show(other("2"))
		if held() != 1 {
			t.Error("the claim was released while a pod uses it")
		}
		late = false
		show(user.DeepCopy())
		show(other("3"))
		controllertest.Eventually(t, held, 0)
	})
}

// A volume is protected while it is bound. Writes that fail are repeated.
func TestVolumeInUseIsProtected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := metav1.Now()
		volume := func(name string, deleted *metav1.Time, phase v1.PersistentVolumePhase, finalizers ...string) *v1.PersistentVolume {
			return &v1.PersistentVolume{
				ObjectMeta: metav1.ObjectMeta{Name: name, DeletionTimestamp: deleted, Finalizers: finalizers},
				Status:     v1.PersistentVolumeStatus{Phase: phase},
			}
		}
		c := controllertest.New(t,
			volume("bound", &now, v1.VolumeBound, volumeFinalizer), volume("fresh", nil, v1.VolumeAvailable),
			volume("protected", nil, v1.VolumeBound, volumeFinalizer), volume("released", &now, v1.VolumeReleased, volumeFinalizer, "other"))
		failures := 4
		c.Fake.PrependReactor("update", "persistentvolumes", func(clienttesting.Action) (bool, runtime.Object, error) {
			failures--
			return failures >= 0, nil, apierrors.NewForbidden(v1.Resource("persistentvolumes"), "", nil)
		})
		c.Run(Volumes())
		finalizers := func() string {
			list, err := c.Fake.CoreV1().PersistentVolumes().List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			out := ""
			for _, pv := range list.Items {
				out += fmt.Sprint(pv.Name, pv.Finalizers, " ")
			}
			return out
		}
		const held = "[kubernetes.io/pv-protection] "
		controllertest.Eventually(t, finalizers, "bound"+held+"fresh"+held+"protected"+held+"released[other] ")
		freed := volume("bound", &now, v1.VolumeReleased, volumeFinalizer)
		if _, err := c.Fake.CoreV1().PersistentVolumes().UpdateStatus(t.Context(), freed, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		controllertest.Eventually(t, finalizers, "bound[] fresh"+held+"protected"+held+"released[other] ")
	})
}
