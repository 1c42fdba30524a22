package statefulset

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/coracle-io/coracle/internal/controller/controllertest"
)

func setOf(replicas int32, policy apps.PodManagementPolicyType, partition int32) *apps.StatefulSet {
	labels := map[string]string{"app": "db"}
	return &apps.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "db", UID: "db", Generation: 1},
		Spec: apps.StatefulSetSpec{
			Replicas: &replicas, ServiceName: "db", PodManagementPolicy: policy,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}},
			UpdateStrategy: apps.StatefulSetUpdateStrategy{
				Type: apps.RollingUpdateStatefulSetStrategyType, RollingUpdate: &apps.RollingUpdateStatefulSetStrategy{Partition: &partition},
			},
			VolumeClaimTemplates: []v1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}}},
		},
	}
}

// podsOf parses a description such as "0new 1old! 2new-": the ordinal and the
// revision of each pod, with "!" for not ready and "-" for being deleted.
func podsOf(set *apps.StatefulSet, words string) (out []*v1.Pod) {
	for word := range strings.FieldsSeq(words) {
		ordinal, revision := int(word[0]-'0'), word[1:4]
		p := newPod(set, &set.Spec.Template, revision, ordinal)
		p.Status.Phase = v1.PodRunning
		ready := v1.ConditionTrue
		if strings.HasSuffix(word, "!") {
			ready = v1.ConditionFalse
		}
		if strings.HasSuffix(word, "-") {
			now := metav1.Now()
			p.DeletionTimestamp = &now
		}
		p.Status.Conditions = []v1.PodCondition{{Type: v1.PodReady, Status: ready}}
		out = append(out, p)
	}
	return out
}

// Percentages of maxUnavailable are rounded down, but an update always proceeds.
func TestMaxUnavailable(t *testing.T) {
	for _, c := range []struct {
		value    string
		replicas int32
		want     int
	}{{"", 10, 1}, {"3", 10, 3}, {"3", 0, 3}, {"0", 0, 1}, {"10%", 25, 2}, {"100%", 5, 5}, {"50%", 5, 2}, {"10%", 5, 1}, {"1%", 0, 1}, {"0%", 0, 1}} {
		set := setOf(c.replicas, apps.ParallelPodManagement, 0)
		if c.value != "" {
			set.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable = new(intstr.Parse(c.value))
		}
		if got := maxUnavailable(set); got != c.want {
			t.Errorf("%q of %d: %d, want %d", c.value, c.replicas, got, c.want)
		}
	}
}

func TestCollisionCountStartsAtZero(t *testing.T) {
	set := setOf(1, apps.OrderedReadyPodManagement, 0)
	if got := status(snapshot{set: set}, collisionCount(set)).CollisionCount; got == nil || *got != 0 {
		t.Errorf("collisionCount of a new set is %v, want 0", got)
	}
	three := int32(3)
	set.Status.CollisionCount = &three
	if got := collisionCount(set); *got != 3 {
		t.Errorf("collisionCount is %d, want 3", *got)
	}
}

// When all pods have the new revision and are ready, it becomes the current one, whoever has
// replaced them.
func TestUpdateIsComplete(t *testing.T) {
	for _, c := range []struct {
		strategy  apps.StatefulSetUpdateStrategyType
		partition int32
		pods      string
		current   string
		replicas  int32 // of the current revision
	}{
		{apps.OnDeleteStatefulSetStrategyType, 0, "0new 1new 2new", "new", 3},
		{apps.OnDeleteStatefulSetStrategyType, 0, "0new 1new 2new!", "old", 0},
		{apps.OnDeleteStatefulSetStrategyType, 0, "0old 1new 2new", "old", 1},
		{apps.OnDeleteStatefulSetStrategyType, 0, "0new 1new", "old", 0},
		{apps.RollingUpdateStatefulSetStrategyType, 2, "0new 1new 2new", "new", 3},
		{apps.RollingUpdateStatefulSetStrategyType, 2, "0old 1old 2new", "old", 2},
		{apps.RollingUpdateStatefulSetStrategyType, 0, "0new 1new 2new", "new", 3},
	} {
		set := setOf(3, apps.OrderedReadyPodManagement, c.partition)
		set.Spec.UpdateStrategy.Type = c.strategy
		st := status(snapshot{set: set, pods: podsOf(set, c.pods), currentRevision: "old", updateRevision: "new", now: time.Now()}, nil)
		if st.CurrentRevision != c.current || st.CurrentReplicas != c.replicas {
			t.Errorf("%s with partition %d, pods %q: %d of revision %s, want %d of %s",
				c.strategy, c.partition, c.pods, st.CurrentReplicas, st.CurrentRevision, c.replicas, c.current)
		}
	}
}

// The set is synced when the next pod becomes available, whichever it is.
func TestNextAvailablePod(t *testing.T) {
	now := time.Unix(1000, 0)
	set := setOf(3, apps.OrderedReadyPodManagement, 0)
	set.Spec.MinReadySeconds = 30
	pods := podsOf(set, "0new 1new 2new")
	for i, ago := range []time.Duration{5 * time.Second, 25 * time.Second, time.Minute} {
		pods[i].Status.Conditions[0].LastTransitionTime = metav1.NewTime(now.Add(-ago))
	}
	if got := plan(snapshot{set: set, pods: pods, currentRevision: "new", updateRevision: "new", now: now}).wait; got != 5*time.Second {
		t.Errorf("waits %v, want 5s", got)
	}
}

func TestPlan(t *testing.T) {
	for _, c := range []struct {
		name      string
		replicas  int32
		policy    apps.PodManagementPolicyType
		partition int32
		pods      string
		want      string
	}{
		{"the first of three", 3, "OrderedReady", 0, "", "+0new"},
		{"waits for the first", 3, "OrderedReady", 0, "0new!", ""},
		{"then the second", 3, "OrderedReady", 0, "0new", "+1new"},
		{"fills a gap first", 3, "OrderedReady", 0, "1new 2new", "+0new"},
		{"parallel scale up", 3, "Parallel", 0, "", "+0new +1new +2new"},
		{"scale down from the highest ordinal", 1, "OrderedReady", 0, "0new 1new 2new", "-2"},
		{"scale down one at a time", 1, "OrderedReady", 0, "0new 1new 2new-", ""},
		{"scale down above an unhealthy pod", 1, "OrderedReady", 0, "0new 1new! 2new", "-2"},
		{"scale down deletes the only unhealthy pod", 1, "OrderedReady", 0, "0new 1new 2new!", "-2"},
		{"scale down stops at two unhealthy pods", 1, "OrderedReady", 0, "0new 1new! 2new!", ""},
		{"scale down stops at an unhealthy pod that is kept", 1, "OrderedReady", 0, "0new! 1new 2new", ""},
		{"parallel scale down of unhealthy pods", 1, "Parallel", 0, "0new! 1new! 2new!", "-1 -2"},
		{"parallel scale down", 1, "Parallel", 0, "0new 1new 2new", "-1 -2"},
		{"update begins at the highest ordinal", 3, "OrderedReady", 0, "0old 1old 2old", "-2"},
		{"update waits", 3, "OrderedReady", 0, "0old 1old 2new!", ""},
		{"update continues", 3, "OrderedReady", 0, "0old 1old 2new", "-1"},
		{"update stops at the partition", 3, "OrderedReady", 2, "0old 1old 2new", ""},
		{"below the partition, the old revision is created again", 3, "OrderedReady", 2, "1old 2new", "+0old"},
		{"update of parallel pods, one at a time", 3, "Parallel", 0, "0old 1old 2old", "-2"},
		{"update of parallel pods replaces the unavailable ones first", 3, "Parallel", 0, "0old! 1old 2old", "-0"},
		{"update of parallel pods that are all unavailable", 3, "Parallel", 0, "0old! 1old! 2old!", "-0 -1 -2"},
		{"update of parallel pods waits for new ones", 3, "Parallel", 0, "0old 1old 2new!", ""},
		{"update of parallel pods keeps unavailable ones below the partition", 3, "Parallel", 1, "0old! 1old 2old", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			set := setOf(c.replicas, c.policy, c.partition)
			next := plan(snapshot{set: set, pods: podsOf(set, c.pods), currentRevision: "old", updateRevision: "new", now: time.Now()})
			var got []string
			for _, s := range next.create {
				got = append(got, fmt.Sprintf("+%d%s", s.ordinal, s.revision))
			}
			for _, p := range next.delete {
				got = append(got, strings.Replace(p.Name, "db", "", 1))
			}
			slices.Sort(got)
			if s := strings.Join(got, " "); s != c.want || len(next.repair) != 0 {
				t.Errorf("got %q, want %q, repairs %v", s, c.want, next.repair)
			}
		})
	}
}

func TestComesUpInOrderAndUpdates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := setOf(3, apps.OrderedReadyPodManagement, 0)
		c := controllertest.New(t, set)
		c.Run(Descriptor())
		synctest.Wait()
		names := func() string {
			var out []string
			for _, p := range c.Pods("default") {
				out = append(out, p.Name)
			}
			return strings.Join(out, " ")
		}
		controllertest.Eventually(t, names, "db-0")
		c.SetReady("default", "db-0", time.Now())
		controllertest.Eventually(t, names, "db-0 db-1")
		c.SetReady("default", "db-1", time.Now())
		controllertest.Eventually(t, names, "db-0 db-1 db-2")
		c.SetReady("default", "db-2", time.Now())
		status := func() string {
			s, err := c.Fake.AppsV1().StatefulSets("default").Get(t.Context(), "db", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return fmt.Sprintf("%d ready, %d updated, one revision %v", s.Status.ReadyReplicas, s.Status.UpdatedReplicas, s.Status.CurrentRevision == s.Status.UpdateRevision)
		}
		controllertest.Eventually(t, status, "3 ready, 3 updated, one revision true")
		claims, err := c.Fake.CoreV1().PersistentVolumeClaims("default").List(t.Context(), metav1.ListOptions{})
		if err != nil || len(claims.Items) != 3 || claims.Items[0].Name != "data-db-0" {
			t.Errorf("claims: %v, %v", claims, err)
		}

		changed, _ := c.Fake.AppsV1().StatefulSets("default").Get(t.Context(), "db", metav1.GetOptions{})
		changed.Spec.Template.Spec.Containers = []v1.Container{{Name: "c", Image: "two"}}
		if _, err := c.Fake.AppsV1().StatefulSets("default").Update(t.Context(), changed, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		for ordinal := 2; ordinal >= 0; ordinal-- {
			name := fmt.Sprint("db-", ordinal)
			controllertest.Eventually(t, func() bool {
				for _, p := range c.Pods("default") {
					if p.Name == name {
						return len(p.Spec.Containers) == 1
					}
				}
				return false
			}, true)
			c.SetReady("default", name, time.Now())
		}
		controllertest.Eventually(t, status, "3 ready, 3 updated, one revision true")
	})
}

// A StatefulSet that is deleted with the policy Orphan and created again adopts its revisions
// and keeps its pods.
func TestRecreatedSetKeepsPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := setOf(1, apps.OrderedReadyPodManagement, 0)
		c := controllertest.New(t, set)
		c.Run(Descriptor())
		synctest.Wait()
		controllertest.Eventually(t, func() int { return len(c.Pods("default")) }, 1)
		c.SetReady("default", "db-0", time.Now())
		before := c.Pods("default")[0]
		revisions := func() []apps.ControllerRevision {
			list, err := c.Fake.AppsV1().ControllerRevisions("default").List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return list.Items
		}
		if err := c.Fake.AppsV1().StatefulSets("default").Delete(t.Context(), "db", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		orphan := before.DeepCopy()
		orphan.ResourceVersion, orphan.OwnerReferences = "", nil
		if _, err := c.Fake.CoreV1().Pods("default").Update(t.Context(), orphan, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		for _, r := range revisions() {
			r.OwnerReferences = nil
			if _, err := c.Fake.AppsV1().ControllerRevisions("default").Update(t.Context(), &r, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		again := setOf(1, apps.OrderedReadyPodManagement, 0)
		again.UID = "again"
		if _, err := c.Fake.AppsV1().StatefulSets("default").Create(t.Context(), again, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		controllertest.Eventually(t, func() string {
			var owners []string
			for _, p := range c.Pods("default") {
				owners = append(owners, fmt.Sprint(p.UID == before.UID, metav1.IsControlledBy(&p, again)))
			}
			for _, r := range revisions() {
				owners = append(owners, fmt.Sprint(metav1.IsControlledBy(&r, again)))
			}
			got, err := c.Fake.AppsV1().StatefulSets("default").Get(t.Context(), "db", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return fmt.Sprint(strings.Join(owners, ", "), "; updated ", got.Status.UpdatedReplicas)
		}, "true true, true; updated 1")
	})
}
