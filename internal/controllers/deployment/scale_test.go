package deployment

import (
	"fmt"
	"strings"
	"testing"
	"time"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/coracle-io/coracle/internal/wallclock"
	"github.com/coracle-io/coracle/internal/wallclock/wallclocktest"
)

func deploymentOf(replicas int32, surge, unavailable string) *apps.Deployment {
	up, down := intstr.Parse(surge), intstr.Parse(unavailable)
	labels := map[string]string{"app": "web"}
	return &apps.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "d", Generation: 1},
		Spec: apps.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}},
			Strategy: apps.DeploymentStrategy{
				Type:          apps.RollingUpdateDeploymentStrategyType,
				RollingUpdate: &apps.RollingUpdateDeployment{MaxSurge: &up, MaxUnavailable: &down},
			},
		},
	}
}

// replicaSetOf returns a ReplicaSet of "size/available", created at the age-th second.
func replicaSetOf(name, sizes string, age int) *apps.ReplicaSet {
	var replicas, available int32
	if _, err := fmt.Sscanf(sizes, "%d/%d", &replicas, &available); err != nil {
		panic(err)
	}
	return &apps.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.Unix(int64(age), 0)},
		Spec:       apps.ReplicaSetSpec{Replicas: &replicas},
		Status:     apps.ReplicaSetStatus{Replicas: replicas, AvailableReplicas: available},
	}
}

func setsOf(current string, old ...string) sets {
	var s sets
	for i, o := range old {
		s.oldRSs = append(s.oldRSs, replicaSetOf(fmt.Sprintf("old%d", i), o, i))
	}
	s.newRS = replicaSetOf("new", current, len(old))
	return s
}

// deleting adds an old ReplicaSet of size 0 that has not deleted its pods.
func deleting(pods int32, s sets) sets {
	rs := replicaSetOf("deleting", "0/0", -1)
	rs.Status.Replicas = pods
	s.oldRSs = append(s.oldRSs, rs)
	return s
}

func words(scalings []scaling) string {
	var out []string
	for _, s := range scalings {
		out = append(out, fmt.Sprintf("%s=%d", s.rs.Name, s.to))
	}
	return strings.Join(out, " ")
}

func TestRollingUpdateSteps(t *testing.T) {
	for _, c := range []struct {
		name               string
		replicas           int32
		surge, unavailable string
		sets               sets
		grow               int32
		shrink             string
	}{
		{"first roll-out", 3, "25%", "25%", setsOf("0/0"), 3, ""},
		{"surge by one", 3, "25%", "25%", setsOf("0/0", "3/3"), 1, ""},
		{"wait for the new pod", 3, "25%", "25%", setsOf("1/0", "3/3"), 1, ""},
		{"new pod is available", 3, "25%", "25%", setsOf("1/1", "3/3"), 1, "old0=2"},
		{"50%", 10, "0", "50%", setsOf("0/0", "10/10"), 0, "old0=5"},
		{"unhealthy old pods are removed first", 10, "0", "20%", setsOf("0/0", "5/5", "5/3"), 0, "old1=3"},
		{"all old pods are unhealthy", 3, "1", "0", setsOf("1/0", "3/0"), 1, ""},
		{"several old ReplicaSets", 4, "0", "50%", setsOf("2/2", "1/1", "1/1"), 2, "old0=0 old1=0"},
		{"too many new pods", 2, "1", "0", setsOf("5/5"), 2, ""},
		{"an old ReplicaSet is still being scaled down", 5, "25%", "25%", setsOf("2/2", "5/15"), 2, "old0=2"},
		{"both are still being scaled down", 5, "25%", "25%", setsOf("2/8", "5/15"), 2, "old0=2"},
		{"the new one is still being scaled down", 5, "25%", "25%", setsOf("2/8", "5/0"), 2, "old0=2"},
		{"if both are zero, one may be unavailable", 2, "0", "0%", setsOf("0/0", "2/2"), 0, "old0=1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := deploymentOf(c.replicas, c.surge, c.unavailable)
			if got := newReplicas(d, c.sets); got != c.grow {
				t.Errorf("the new ReplicaSet grows to %d, want %d", got, c.grow)
			}
			if got := words(scaleDownOld(d, c.sets)); got != c.shrink {
				t.Errorf("old shrink to %q, want %q", got, c.shrink)
			}
		})
	}
}

func TestLimits(t *testing.T) {
	for _, c := range []struct {
		replicas           int32
		surge, unavailable string
		want               string
	}{
		{0, "0%", "0%", "0 0"},
		{0, "3", "25%", "3 0"},
		{10, "39%", "39%", "4 3"},
		{10, "0", "0", "0 1"},
		{10, "5", "50", "5 10"},
		{1, "50%", "50%", "1 0"},
		{10, "0", "100%", "0 10"},
	} {
		surge, unavailable := limits(deploymentOf(c.replicas, c.surge, c.unavailable))
		if got := fmt.Sprint(surge, unavailable); got != c.want {
			t.Errorf("%d replicas, %s and %s: %s, want %s", c.replicas, c.surge, c.unavailable, got, c.want)
		}
	}
}

func TestProportionalScaling(t *testing.T) {
	for _, c := range []struct {
		name string
		to   int32
		max  string
		sets sets
		want string
	}{
		{"scale up during a roll-out", 15, "13", setsOf("5/5", "8/8"), "old0=11 new=7"},
		{"scale down during a roll-out", 5, "13", setsOf("5/5", "8/8"), "old0=5 new=3"},
		{"scale down with unavailable new pods", 5, "13", setsOf("8/0", "5/5"), "new=5 old0=3"},
		{"scale down with unavailable old pods", 5, "13", setsOf("4/4", "8/0"), "old0=5 new=3"},
		{"to zero", 0, "13", setsOf("5/5", "8/8"), "old0=0 new=0"},
		{"from a surge of three to another", 50, "13", setsOf("5/5", "8/8"), "old0=33 new=20"},
		{"of three, up", 9, "7", setsOf("2/2", "2/2", "3/3"), "old1=6 new=3 old0=3"},
		{"up beside pods that are being deleted", 14, "13", deleting(3, setsOf("5/5", "8/8")), "old0=9 new=5"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, rs := range c.sets.all() {
				rs.Annotations = map[string]string{maxAnnotation: c.max, desiredAnnotation: "10"}
			}
			d := deploymentOf(c.to, "3", "2")
			if !needsRescale(d, c.sets) {
				t.Error("needs no rescaling")
			}
			if got := words(rescale(d, c.sets)); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// A Deployment that is scaled down and up again keeps the pods that its ReplicaSet has not deleted yet,
// or cannot delete.
func TestScaleBackUp(t *testing.T) {
	for _, c := range []struct {
		to, size, pods, want int32
	}{
		{10, 5, 10, 10},
		{10, 5, 20, 10},
		{10, 5, 5, 10},
		{8, 5, 10, 8},
	} {
		s := sets{newRS: replicaSetOf("new", fmt.Sprintf("%d/%d", c.size, c.size), 0)}
		s.newRS.Status.Replicas = c.pods
		d := deploymentOf(c.to, "0", "1")
		if got := words(rescale(d, s)); got != fmt.Sprint("new=", c.want) {
			t.Errorf("%+v: rescaled to %s", c, got)
		}
		if got := newReplicas(d, s); got != c.want {
			t.Errorf("%+v: grown to %d", c, got)
		}
	}
}

func TestHistoryLimit(t *testing.T) {
	d := deploymentOf(1, "1", "0")
	d.Spec.RevisionHistoryLimit = new(int32)
	*d.Spec.RevisionHistoryLimit = 1
	var old []*apps.ReplicaSet
	for i, revision := range []string{"3", "1", "2"} {
		rs := replicaSetOf("r"+revision, "0/0", i)
		rs.Annotations = map[string]string{revisionAnnotation: revision}
		old = append(old, rs)
	}
	old = append(old, replicaSetOf("running", "1/1", 9))
	var names []string
	for _, rs := range expired(d, old) {
		names = append(names, rs.Name)
	}
	if got := strings.Join(names, " "); got != "r1 r2" {
		t.Errorf("deleted %q", got)
	}
}

// The hash depends only on the template and the number of collisions.
func TestTemplateHashIsStable(t *testing.T) {
	d := deploymentOf(1, "1", "0")
	first := templateHash(&d.Spec.Template, nil)
	d.Spec.Replicas = nil
	if second := templateHash(&d.Spec.Template, nil); first != second {
		t.Errorf("%s and %s", first, second)
	}
	one := int32(1)
	if second := templateHash(&d.Spec.Template, &one); first == second {
		t.Errorf("a collision gives the same hash %s", first)
	}
}

func TestProgressDeadline(t *testing.T) {
	d := deploymentOf(2, "1", "0")
	deadline := int32(600)
	d.Spec.ProgressDeadlineSeconds = &deadline
	start := time.Unix(1000000, 0)
	s := setsOf("2/0")
	step := func(now time.Time) string {
		status, requeueAfter := rolloutStatus(d, s, func(t time.Time) time.Time { return t }, now)
		d.Status = status
		c := condition(&status, apps.DeploymentProgressing)
		return fmt.Sprintf("%s %s %v", c.Status, c.Reason, requeueAfter)
	}
	if got := step(start); got != "True ReplicaSetUpdated 10m1s" {
		t.Error(got)
	}
	if got := step(start.Add(5 * time.Minute)); got != "True ReplicaSetUpdated 5m1s" {
		t.Error(got)
	}
	if got := step(start.Add(601 * time.Second)); got != "False ProgressDeadlineExceeded 0s" {
		t.Error(got)
	}
	s.newRS.Status.ReadyReplicas, s.newRS.Status.AvailableReplicas = 2, 2
	if got := step(start.Add(700 * time.Second)); got != "True NewReplicaSetAvailable 0s" {
		t.Error(got)
	}
	if c := condition(&d.Status, apps.DeploymentAvailable); c.Status != v1.ConditionTrue || c.Message != "Deployment has minimum availability." {
		t.Error(c)
	}
}

// The deadline does not depend on by what the clock is set while a roll-out does not progress.
func TestProgressDeadlineWhileTheClockIsSet(t *testing.T) {
	for _, set := range []time.Duration{0, -time.Hour, time.Hour} {
		d, s := deploymentOf(2, "1", "0"), setsOf("2/0")
		d.Spec.ProgressDeadlineSeconds = new(int32(600))
		begin := time.Now()
		var progress wallclock.Moments[string]
		step := func(elapsed, set time.Duration) string {
			now := wallclocktest.Set(begin.Add(elapsed), set)
			status, requeueAfter := rolloutStatus(d, s, func(t time.Time) time.Time { return progress.At("web", t.Round(0), now) }, now)
			d.Status = status
			return fmt.Sprintf("%s %v", condition(&status, apps.DeploymentProgressing).Reason, requeueAfter)
		}
		for _, want := range []struct {
			elapsed, set time.Duration
			status       string
		}{{0, 0, "ReplicaSetUpdated 10m1s"}, {5 * time.Minute, set, "ReplicaSetUpdated 5m1s"}, {601 * time.Second, set, "ProgressDeadlineExceeded 0s"}} {
			if got := step(want.elapsed, want.set); got != want.status {
				t.Errorf("set by %v: after %v %s, want %s", set, want.elapsed, got, want.status)
			}
		}
	}
}

// The name of a ReplicaSet ends with the whole hash, also if the Deployment has the longest
// name.
func TestNameOfReplicaSet(t *testing.T) {
	d := deploymentOf(1, "1", "0")
	hash := newReplicaSet(d).Labels[apps.DefaultDeploymentUniqueLabelKey]
	for _, length := range []int{1, 253 - 1 - len(hash), 253} {
		d.Name = strings.Repeat("a", length)
		want := d.Name[:min(length, 253-1-len(hash))] + "-" + hash
		if got := newReplicaSet(d).Name; got != want {
			t.Errorf("a Deployment with a name of %d bytes: %s, want %s", length, got, want)
		}
	}
}
