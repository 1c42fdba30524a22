package sim

import (
	"cmp"
	"flag"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/util/retry"

	"github.com/coracle-io/coracle/internal/simnode"
)

var (
	firstSeed = flag.Uint64("sim.seed", 1, "first seed of TestSimulation")
	seeds     = flag.Int("sim.count", 4, "number of seeds of TestSimulation")
	wide      = flag.Bool("sim.wide", false, "do in TestSimulation also what only searches for errors do; see docs/simulation.md")
	clocks    = flag.Bool("sim.clocks", false, "let the clocks of nodes, of the controllers and of the scheduler differ in TestSimulation, in runs with odd seeds; see docs/simulation.md")
	steps     = flag.Int("sim.steps", 15, "number of things that users do in TestSimulation")
	shrink    = flag.Bool("sim.shrink", false, "repeat seeds of TestSimulation that fail, with as few steps as possible")
)

// TestSimulation runs a simulation for each seed. Nodes fall silent in runs with
// odd seeds. One seed, and the fewest steps with which it fails:
//
//	go test ./test/sim -run TestSimulation -sim.seed=17 -sim.count=1 -sim.shrink
func TestSimulation(t *testing.T) {
	for seed := *firstSeed; seed < *firstSeed+uint64(*seeds); seed++ {
		run := func(name string, steps int) bool {
			return t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { simulate(t, seed, steps) }) })
		}
		if run(fmt.Sprint(seed), *steps) || !*shrink {
			continue
		}
		for n := range *steps {
			if !run(fmt.Sprintf("%d with %d steps", seed, n), n) {
				t.Logf("seed %d fails with the first %d of %d steps", seed, n, *steps)
				break
			}
		}
	}
}

// pause lets virtual time pass.
func pause(d time.Duration) { time.Sleep(d) }

const (
	// convergence is how long everything may take once the faults have stopped:
	// eviction from a silent node takes six minutes, and back-offs five.
	convergence = 20 * time.Minute
	// quiet is how long nobody may write then.
	quiet = 3 * time.Minute
)

func simulate(t *testing.T, seed uint64, steps int) {
	w := newWorld(t, seed)
	w.rules.undisturbed = seed%2 == 0
	stop := w.start()
	defer stop()
	w.until(5*time.Minute, w.nodesAreReady)
	u := newUser(w)
	if *wide {
		u.setUp()
	}
	for range steps {
		u.step()
		pause(time.Duration(w.users.below(40)) * time.Second)
	}
	w.faults.stop()
	c := calm{u}
	if *wide {
		c.createUnreachableCronJob()
		c.storage.provide()
	}
	w.until(convergence, u.unconverged)
	if *wide {
		c.scaleTwice()
		c.rollOutDaemons()
		w.until(convergence, u.unconverged)
	}
	pause(time.Minute) // what was under way
	before, _ := w.faults.written()
	pause(quiet)
	if after, last := w.faults.written(); after != before {
		t.Errorf("seed %d: after everything has converged there were %d writes, the last %s", seed, after-before, last)
	}
	u.checkEnd()
}

// user changes what a user of the cluster changes.
type user struct {
	*world
	deployments map[string]*apps.Deployment // as they are wanted
	sets        map[string]int              // replicas of StatefulSets
	kept        map[string]bool             // StatefulSets that are not scaled any more
	jobs        map[string]int32            // pods that the user has deleted
	deleted     []string                    // Deployments
	families    *families
	storage     *storage
	begun       time.Time
	number      int
}

func newUser(w *world) *user {
	return &user{
		world: w, deployments: map[string]*apps.Deployment{}, sets: map[string]int{}, kept: map[string]bool{}, jobs: map[string]int32{},
		families: &families{world: w, kept: map[string]types.UID{}}, storage: &storage{world: w}, begun: time.Now(),
	}
}

// step does one thing at random.
func (u *user) step() {
	u.number++
	actions := 10
	if *wide {
		actions = 23
	}
	what, do := u.choose(u.users.below(actions))
	u.t.Logf("step %d, after %v: %s", u.number, time.Since(u.begun).Round(time.Second), what)
	do()
}

// choose returns an action. Those from 10 are of a wide simulation.
func (u *user) choose(action int) (what string, do func()) {
	switch {
	case u.number <= 3:
		return "create", func() { u.create(u.number) }
	case action == 0:
		return "create", func() { u.create(1 + u.users.below(3)) }
	case action == 1 && len(u.deployments) > 1:
		return "delete a deployment", u.deleteDeployment
	case action <= 5:
		return "change a deployment", u.changeDeployment
	case action <= 7:
		return "scale a statefulset", u.scaleSet
	case action <= 9 && !u.rules.undisturbed:
		return "silence a node", func() {
			u.nodes[u.users.below(len(u.nodes))].fallSilent(time.Duration(u.users.below(400)) * time.Second)
		}
	case action <= 9 && *wide:
		return "make a node say that it is not ready", u.hiccup
	case action <= 9:
		return "nothing", func() {}
	case action == 10:
		return "replace a statefulset", u.replaceSet
	case action <= 12:
		return "roll out a deployment and make it small", u.squeeze
	case action == 13:
		return "shrink a job", u.shrinkJob
	case action == 14:
		return "taint a node", u.taint
	case action == 15:
		return "let a held daemon pod fail", u.holdDaemon
	case action == 16:
		return "evict pods", u.evict
	case action == 17:
		return "suspend a job", u.suspendJob
	case action == 18:
		return "announce a disruption", u.announceDisruption
	case action == 19:
		return "replace the owner of objects", u.families.replaceOwner
	case action == 20:
		return "create as many claims as the quota allows", u.storage.fill
	case action == 21:
		return "delete a claim", u.storage.deleteClaim
	default:
		return "delete pods that were never seen", u.loseCreations
	}
}

// create creates a Deployment, a StatefulSet or a Job.
func (u *user) create(kind int) {
	ctx, name := u.t.Context(), fmt.Sprintf("w%d", u.number)
	switch kind {
	case 1:
		d := u.newDeployment(name)
		u.expect(d)
		_, err := u.admin.AppsV1().Deployments(namespace).Create(ctx, d, metav1.CreateOptions{})
		u.check("create a deployment", err)
		u.deployments[name] = d
	case 2:
		replicas := int32(1 + u.users.below(4))
		s := &apps.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: apps.StatefulSetSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"set": name}}, Template: u.template("set", name, nil),
		}}
		_, err := u.admin.AppsV1().StatefulSets(namespace).Create(ctx, s, metav1.CreateOptions{})
		u.check("create a statefulset", err)
		u.sets[name] = int(replicas)
	case 3:
		completions, parallelism := int32(2+u.users.below(6)), int32(1+u.users.below(3))
		u.createJob(name, completions, parallelism, fmt.Sprintf("%ds", 1+u.users.below(20)))
	}
}

// createJob creates an indexed Job whose pods run for a time.
func (u *user) createJob(name string, completions, parallelism int32, runFor string) {
	indexed := batch.IndexedCompletion
	j := &batch.Job{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: batch.JobSpec{
		CompletionMode: &indexed, Completions: &completions, Parallelism: &parallelism, BackoffLimit: new(int32(1000)),
		Template: u.template("job", name, map[string]string{simnode.AnnotationRunFor: runFor}),
	}}
	j.Spec.Template.Spec.RestartPolicy = v1.RestartPolicyNever
	_, err := u.admin.BatchV1().Jobs(namespace).Create(u.t.Context(), j, metav1.CreateOptions{})
	u.check("create a job", err)
	u.jobs[name] = 0
}

func (u *user) template(label, name string, annotations map[string]string) v1.PodTemplateSpec {
	return v1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{label: name}, Annotations: annotations},
		Spec: v1.PodSpec{
			Containers:  []v1.Container{{Name: "main", Image: "example.com/main:1"}},
			Tolerations: []v1.Toleration{{Key: taintKey, Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute, TolerationSeconds: new(int64(tolerated / time.Second))}},
		},
	}
}

func (u *user) newDeployment(name string) *apps.Deployment {
	replicas, surge := int32(1+u.users.below(6)), intstr.FromInt32(int32(1+u.users.below(2)))
	unavailable := intstr.FromInt32(int32(u.users.below(2)))
	return &apps.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: apps.DeploymentSpec{
		Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}},
		Strategy: apps.DeploymentStrategy{Type: apps.RollingUpdateDeploymentStrategyType, RollingUpdate: &apps.RollingUpdateDeployment{MaxSurge: &surge, MaxUnavailable: &unavailable}},
		Template: u.template("app", name, map[string]string{simnode.AnnotationReadyAfter: fmt.Sprintf("%ds", u.users.below(6))}),
	}}
}

// numbers returns what a Deployment allows.
func numbers(d *apps.Deployment) (replicas, surge, unavailable int) {
	return int(*d.Spec.Replicas), d.Spec.Strategy.RollingUpdate.MaxSurge.IntValue(), d.Spec.Strategy.RollingUpdate.MaxUnavailable.IntValue()
}

func (u *user) expect(d *apps.Deployment) {
	replicas, surge, unavailable := numbers(d)
	u.rules.expect(d.Name, replicas, surge, unavailable)
}

// aDeployment returns one of the Deployments.
func (u *user) aDeployment() *apps.Deployment {
	n := u.users.below(u.number)
	for i := range u.number {
		if d := u.deployments[fmt.Sprintf("w%d", 1+(n+i)%u.number)]; d != nil {
			return d
		}
	}
	return nil
}

// changeDeployment scales a Deployment, or rolls out a new template.
func (u *user) changeDeployment() {
	if d := u.aDeployment(); u.users.below(2) == 0 {
		u.scale(d, int32(1+u.users.below(6)))
	} else {
		u.rollOut(d)
	}
}

func (u *user) scale(wanted *apps.Deployment, replicas int32) {
	u.update(wanted, func() { wanted.Spec.Replicas = &replicas })
}

func (u *user) rollOut(wanted *apps.Deployment) {
	u.update(wanted, func() {
		wanted.Spec.Template.Spec.Containers[0].Image = fmt.Sprintf("example.com/main:%d", u.number)
	})
}

// update lets change change what is wanted of a Deployment, and writes it.
func (u *user) update(wanted *apps.Deployment, change func()) {
	if u.unconvergedDeployment(wanted) == "" {
		replicas, surge, unavailable := numbers(wanted)
		u.rules.converged(wanted.Name, replicas, surge, unavailable)
	}
	change()
	u.expect(wanted)
	u.check("update a deployment", retry.RetryOnConflict(retry.DefaultRetry, func() error {
		d, err := u.admin.AppsV1().Deployments(namespace).Get(u.t.Context(), wanted.Name, metav1.GetOptions{})
		if err == nil {
			d.Spec.Replicas, d.Spec.Template = wanted.Spec.Replicas, *wanted.Spec.Template.DeepCopy()
			_, err = u.admin.AppsV1().Deployments(namespace).Update(u.t.Context(), d, metav1.UpdateOptions{})
		}
		return err
	}))
}

func (u *user) deleteDeployment() {
	d := u.aDeployment()
	u.rules.forget(d.Name)
	u.check("delete a deployment", u.admin.AppsV1().Deployments(namespace).Delete(u.t.Context(), d.Name, metav1.DeleteOptions{}))
	delete(u.deployments, d.Name)
	u.deleted = append(u.deleted, d.Name)
}

// aSet returns the name of a StatefulSet that may be changed, "" if there is none.
func (u *user) aSet() string {
	n := u.users.below(u.number)
	for i := range u.number {
		name := fmt.Sprintf("w%d", 1+(n+i)%u.number)
		if _, ok := u.sets[name]; ok && !u.kept[name] {
			return name
		}
	}
	return ""
}

func (u *user) scaleSet() {
	name := u.aSet()
	if name == "" {
		return
	}
	u.sets[name] = u.users.below(5)
	u.check("scale a statefulset", retry.RetryOnConflict(retry.DefaultRetry, func() error {
		s, err := u.admin.AppsV1().StatefulSets(namespace).Get(u.t.Context(), name, metav1.GetOptions{})
		if err == nil {
			s.Spec.Replicas = new(int32(u.sets[name]))
			_, err = u.admin.AppsV1().StatefulSets(namespace).Update(u.t.Context(), s, metav1.UpdateOptions{})
		}
		return err
	}))
}

func (u *user) unconvergedSet(name string) string {
	s, err := u.admin.AppsV1().StatefulSets(namespace).Get(u.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		return err.Error()
	}
	if n := u.sets[name]; s.Status.ObservedGeneration != s.Generation || int(s.Status.ReadyReplicas) != n || int(s.Status.Replicas) != n || u.podsOf("set", name) != n {
		return fmt.Sprintf("statefulset %s is to have %d replicas: %+v", name, n, s.Status)
	}
	return ""
}

func (u *user) unconvergedDeployment(wanted *apps.Deployment) string {
	d, err := u.admin.AppsV1().Deployments(namespace).Get(u.t.Context(), wanted.Name, metav1.GetOptions{})
	if err != nil {
		return err.Error()
	}
	n, s := *wanted.Spec.Replicas, d.Status
	if s.ObservedGeneration != d.Generation || s.Replicas != n || s.UpdatedReplicas != n || s.AvailableReplicas != n || u.podsOf("app", d.Name) != int(n) {
		return fmt.Sprintf("deployment %s has %d replicas: %+v", d.Name, n, s)
	}
	return ""
}

// podsOf returns the number of pods with a label that have not ended.
func (u *user) podsOf(label, value string) (n int) {
	list, err := u.admin.CoreV1().Pods(namespace).List(u.t.Context(), metav1.ListOptions{LabelSelector: label + "=" + value})
	u.check("list pods", err)
	for i := range list.Items {
		if p := &list.Items[i]; p.Status.Phase != v1.PodSucceeded && p.Status.Phase != v1.PodFailed {
			n++
		}
	}
	return n
}

// unconverged reports what is not yet as it is wanted.
func (u *user) unconverged() string {
	for _, d := range u.deployments {
		if unmet := u.unconvergedDeployment(d); unmet != "" {
			return unmet
		}
	}
	for name := range u.sets {
		if unmet := u.unconvergedSet(name); unmet != "" {
			return unmet
		}
	}
	for name := range u.jobs {
		j, err := u.admin.BatchV1().Jobs(namespace).Get(u.t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		if j.Status.CompletionTime == nil || u.podsOf("job", name) != 0 {
			return fmt.Sprintf("job %s: %+v", name, j.Status)
		}
	}
	for _, name := range u.deleted {
		sets, err := u.admin.AppsV1().ReplicaSets(namespace).List(u.t.Context(), metav1.ListOptions{LabelSelector: "app=" + name})
		u.check("list replicasets", err)
		if n := len(sets.Items) + u.podsOf("app", name); n > 0 {
			return fmt.Sprintf("%d objects of the deleted deployment %s are left", n, name)
		}
	}
	if *wide {
		if unmet := cmp.Or(u.unconvergedSetUp(), u.families.unconverged(), u.storage.unconverged()); unmet != "" {
			return unmet
		}
	}
	return u.nodesAreReady()
}

// checkEnd checks what must be true once everything has converged.
func (u *user) checkEnd() {
	u.families.checkEnd()
	for name, deleted := range u.jobs {
		j, err := u.admin.BatchV1().Jobs(namespace).Get(u.t.Context(), name, metav1.GetOptions{})
		u.check("get a job", err)
		indexes := "0-" + fmt.Sprint(*j.Spec.Completions-1)
		if *j.Spec.Completions == 2 {
			indexes = "0,1"
		}
		if j.Status.Succeeded != *j.Spec.Completions || j.Status.CompletedIndexes != indexes || j.Status.UncountedTerminatedPods != nil && len(j.Status.UncountedTerminatedPods.Succeeded) > 0 {
			u.t.Errorf("seed %d: job %s has %d completions: %+v", u.seed, name, *j.Spec.Completions, j.Status)
		}
		if u.rules.undisturbed && j.Status.Failed > deleted {
			u.t.Errorf("seed %d: %d pods of job %s failed, and %d were deleted", u.seed, j.Status.Failed, name, deleted)
		}
	}
	for _, name := range u.deleted {
		if _, err := u.admin.AppsV1().Deployments(namespace).Get(u.t.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			u.t.Errorf("seed %d: the deleted deployment %s: %v", u.seed, name, err)
		}
	}
}
