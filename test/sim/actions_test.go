package sim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/util/retry"

	"github.com/coracle-io/coracle/internal/podquery"
)

const (
	// taintKey is the taint that users put on nodes. All pods tolerate it for some time.
	taintKey  = "example.com/taint"
	tolerated = time.Minute
	// elastic is the label of Jobs that become smaller.
	elastic = "elastic"
	// daemons is the name of the DaemonSet, and budgeted that of the Deployment of
	// which a budget keeps all pods but one.
	daemons, budgeted = "daemons", "budgeted"
	budgetedReplicas  = 4
)

// setUp creates what is there from the start: a DaemonSet, a Deployment with a budget, and a
// quota of claims.
func (u *user) setUp() {
	ctx, two := u.t.Context(), intstr.FromInt32(2)
	_, err := u.admin.AppsV1().DaemonSets(namespace).Create(ctx, &apps.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: daemons}, Spec: apps.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{daemons: daemons}}, Template: u.template(daemons, daemons, nil),
		UpdateStrategy: apps.DaemonSetUpdateStrategy{Type: apps.RollingUpdateDaemonSetStrategyType, RollingUpdate: &apps.RollingUpdateDaemonSet{MaxUnavailable: &two}},
	}}, metav1.CreateOptions{})
	u.check("create a daemonset", err)
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{budgeted: budgeted}}
	_, err = u.admin.AppsV1().Deployments(namespace).Create(ctx, &apps.Deployment{ObjectMeta: metav1.ObjectMeta{Name: budgeted}, Spec: apps.DeploymentSpec{
		Replicas: new(int32(budgetedReplicas)), Selector: selector, Template: u.template(budgeted, budgeted, nil),
	}}, metav1.CreateOptions{})
	u.check("create a deployment", err)
	least := intstr.FromInt32(budgetedReplicas - 1)
	_, err = u.admin.PolicyV1().PodDisruptionBudgets(namespace).Create(ctx, &policy.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: budgeted}, Spec: policy.PodDisruptionBudgetSpec{MinAvailable: &least, Selector: selector},
	}, metav1.CreateOptions{})
	u.check("create a budget", err)
	u.storage.setUp()
}

// unconvergedSetUp reports what is not yet as it is wanted of what was there from the start.
func (u *user) unconvergedSetUp() string {
	ctx := u.t.Context()
	if unmet := u.unconvergedDaemons(); unmet != "" {
		return unmet
	}
	d, err := u.admin.AppsV1().Deployments(namespace).Get(ctx, budgeted, metav1.GetOptions{})
	u.check("get a deployment", err)
	if s := d.Status; s.AvailableReplicas != budgetedReplicas || s.Replicas != budgetedReplicas {
		return fmt.Sprintf("deployment %s: %+v", budgeted, s)
	}
	list, err := u.admin.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	u.check("list pods", err)
	for i := range list.Items {
		p := &list.Items[i]
		if c := podquery.Condition(&p.Status, v1.DisruptionTarget); active(p) && c != nil && c.Status == v1.ConditionTrue {
			return fmt.Sprintf("pod %s is about to be disrupted, and nobody does it", p.Name)
		}
	}
	events, err := u.admin.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "reason=InvalidSchedule"})
	u.check("list events", err)
	if len(events.Items) == 0 {
		return "the cronjob that is never due has no event"
	}
	return ""
}

// unconvergedDaemons reports whether a node does not have the pod of the DaemonSet yet.
func (u *user) unconvergedDaemons() string {
	set, err := u.admin.AppsV1().DaemonSets(namespace).Get(u.t.Context(), daemons, metav1.GetOptions{})
	u.check("get a daemonset", err)
	if n, s := int32(len(u.nodes)), set.Status; s.ObservedGeneration != set.Generation || s.DesiredNumberScheduled != n || s.NumberAvailable != n || s.UpdatedNumberScheduled != n {
		return fmt.Sprintf("daemonset %s on %d nodes: %+v", daemons, n, s)
	}
	return ""
}

// aNode returns the name of a node.
func (u *user) aNode() string { return u.nodes[u.users.below(len(u.nodes))].node.Name() }

// changeNode writes a change of a node. With status, it is one of the status.
func (u *user) changeNode(name string, status bool, change func(n *v1.Node)) {
	u.check("change a node", retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		nodes := u.admin.CoreV1().Nodes()
		n, err := nodes.Get(u.t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(n)
		if status {
			_, err = nodes.UpdateStatus(u.t.Context(), n, metav1.UpdateOptions{})
		} else {
			_, err = nodes.Update(u.t.Context(), n, metav1.UpdateOptions{})
		}
		return err
	}))
}

// hiccup makes a node say that it is not ready, as when its network plugin restarts. Its
// kubelet soon says otherwise.
func (u *user) hiccup() {
	u.changeNode(u.aNode(), true, func(n *v1.Node) {
		for i := range n.Status.Conditions {
			if c := &n.Status.Conditions[i]; c.Type == v1.NodeReady {
				c.Status, c.Reason, c.LastTransitionTime = v1.ConditionFalse, "KubeletNotReady", metav1.Now()
			}
		}
	})
}

// taint puts a taint on a node for less time than pods tolerate it.
func (u *user) taint() {
	name := u.aNode()
	u.changeNode(name, false, func(n *v1.Node) {
		n.Spec.Taints = append(n.Spec.Taints, v1.Taint{Key: taintKey, Effect: v1.TaintEffectNoExecute})
	})
	pause(tolerated / 4)
	u.changeNode(name, false, func(n *v1.Node) {
		var left []v1.Taint
		for _, t := range n.Spec.Taints {
			if t.Key != taintKey {
				left = append(left, t)
			}
		}
		n.Spec.Taints = left
	})
}

// squeeze rolls out a large Deployment, and makes it small in the middle.
func (u *user) squeeze() {
	d := u.aDeployment()
	u.scale(d, 10)
	pause(time.Duration(20+u.users.below(40)) * time.Second)
	u.rollOut(d)
	pause(time.Duration(1+u.users.below(15)) * time.Second)
	u.scale(d, 3)
}

// replaceSet deletes a StatefulSet without its pods, and creates it again.
func (u *user) replaceSet() {
	name := u.aSet()
	if name == "" || u.unconvergedSet(name) != "" {
		return
	}
	sets := u.admin.AppsV1().StatefulSets(namespace)
	before, err := sets.Get(u.t.Context(), name, metav1.GetOptions{})
	u.check("get a statefulset", err)
	orphan := metav1.DeletePropagationOrphan
	u.check("delete a statefulset", sets.Delete(u.t.Context(), name, metav1.DeleteOptions{PropagationPolicy: &orphan}))
	u.until(convergence, func() string {
		_, err := sets.Get(u.t.Context(), name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return ""
		}
		return "the deleted statefulset " + name + " is gone"
	})
	u.kept[name] = true
	u.rules.keep(name, u.sets[name])
	_, err = sets.Create(u.t.Context(), &apps.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: before.Spec}, metav1.CreateOptions{})
	u.check("create a statefulset again", err)
}

// shrinkJob makes an indexed Job smaller after its last indexes have succeeded, and before
// the first ones have: their pods are deleted while they run.
func (u *user) shrinkJob() {
	name := fmt.Sprintf("w%d", u.number)
	const first, all = 2, 4
	u.createJob(name, all, all, "20s")
	u.changeJob(name, func(j *batch.Job) { metav1.SetMetaDataLabel(&j.ObjectMeta, elastic, "true") })
	u.until(convergence, func() string {
		if len(u.indexes(name)) < all {
			return "job " + name + " has its pods"
		}
		return ""
	})
	for index, p := range u.indexes(name) {
		if index < first && active(&p) {
			u.check("delete a pod", u.admin.CoreV1().Pods(namespace).Delete(u.t.Context(), p.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(p.UID))}))
			u.jobs[name]++
		}
	}
	u.until(convergence, func() string {
		j, err := u.admin.BatchV1().Jobs(namespace).Get(u.t.Context(), name, metav1.GetOptions{})
		u.check("get a job", err)
		if done := j.Status.CompletedIndexes; !strings.HasSuffix(done, "2,3") && !strings.HasSuffix(done, "-3") {
			return fmt.Sprintf("job %s counts its last indexes: %+v", name, j.Status)
		}
		return ""
	})
	u.changeJob(name, func(j *batch.Job) { j.Spec.Completions, j.Spec.Parallelism = new(int32(first)), new(int32(first)) })
}

// changeJob writes a change of a Job, unless it has ended.
func (u *user) changeJob(name string, change func(j *batch.Job)) {
	u.check("change a job", retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		j, err := u.admin.BatchV1().Jobs(namespace).Get(u.t.Context(), name, metav1.GetOptions{})
		if err == nil && j.Status.CompletionTime == nil { // a Job that has ended counts nothing any more
			change(j)
			_, err = u.admin.BatchV1().Jobs(namespace).Update(u.t.Context(), j, metav1.UpdateOptions{})
		}
		return err
	}))
}

// suspendJob suspends a Job while its pods run, and resumes it. Its pods have not failed.
func (u *user) suspendJob() {
	name := fmt.Sprintf("w%d", u.number)
	u.createJob(name, 4, 2, "30s")
	pause(time.Duration(5+u.users.below(20)) * time.Second)
	u.changeJob(name, func(j *batch.Job) { j.Spec.Suspend = new(true) })
	pause(time.Duration(20+u.users.below(40)) * time.Second)
	u.changeJob(name, func(j *batch.Job) { j.Spec.Suspend = new(false) })
}

// indexes returns the last pod of each index of a Job.
func (u *user) indexes(job string) map[int]v1.Pod {
	pods := map[int]v1.Pod{}
	for _, p := range u.list("job=" + job) {
		index, err := strconv.Atoi(p.Annotations[batch.JobCompletionIndexAnnotation])
		u.check("read the index of a pod", err)
		if before, ok := pods[index]; !ok || before.CreationTimestamp.Before(&p.CreationTimestamp) {
			pods[index] = p
		}
	}
	return pods
}

func (u *user) list(selector string) []v1.Pod {
	list, err := u.admin.CoreV1().Pods(namespace).List(u.t.Context(), metav1.ListOptions{LabelSelector: selector})
	u.check("list pods", err)
	return list.Items
}

// patchPod writes a change of a pod that exists. A change of the status has the
// subresource "status".
func (u *user) patchPod(name, patch string, subresources ...string) {
	_, err := u.admin.CoreV1().Pods(namespace).Patch(u.t.Context(), name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...)
	if !apierrors.IsNotFound(err) {
		u.check("patch a pod", err)
	}
}

// hasFailed is a change of the status of a pod.
const hasFailed = `{"status": {"phase": "Failed", "reason": "Evicted"}}`

// holdDaemon makes a pod of the DaemonSet fail, and keeps it from being removed. Its node
// needs another one.
func (u *user) holdDaemon() {
	for _, p := range u.list(daemons + "=" + daemons) {
		if active(&p) && len(p.Finalizers) == 0 {
			u.patchPod(p.Name, `{"metadata": {"finalizers": ["example.com/held"]}}`)
			u.patchPod(p.Name, hasFailed, "status")
			return
		}
	}
}

// evict evicts all pods of the Deployment with a budget that the budget allows. While no
// node falls silent, it never allows one too many, unless it was computed when there were
// more pods than there are to be.
func (u *user) evict() {
	ready := func() (names []string) {
		for _, p := range u.list(budgeted + "=" + budgeted) {
			if active(&p) && podquery.IsReady(&p) {
				names = append(names, p.Name)
			}
		}
		return names
	}
	names := ready()
	budget, err := u.admin.PolicyV1().PodDisruptionBudgets(namespace).Get(u.t.Context(), budgeted, metav1.GetOptions{})
	u.check("get a budget", err)
	exact := u.rules.undisturbed && len(names) == budgetedReplicas && budget.Status.DisruptionsAllowed <= 1
	for _, name := range names {
		err := u.admin.PolicyV1().Evictions(namespace).Evict(u.t.Context(), &policy.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})
		switch {
		case apierrors.IsTooManyRequests(err), apierrors.IsNotFound(err):
			continue
		case err != nil:
			u.check("evict a pod", err)
		}
		if left := len(ready()); exact && left < budgetedReplicas-1 {
			u.t.Errorf("seed %d: %d pods are ready after the eviction of %s, and the budget keeps %d", u.seed, left, name, budgetedReplicas-1)
		}
	}
}

// announceDisruption says of a pod that it is about to be disrupted, as a scheduler does that
// crashes before it deletes the pod.
func (u *user) announceDisruption() {
	for _, p := range u.list("app") {
		if active(&p) {
			u.patchPod(p.Name, fmt.Sprintf(`{"status": {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "lastTransitionTime": %q}]}}`,
				metav1.Now().UTC().Format(time.RFC3339)), "status")
			return
		}
	}
}

// loseCreations deletes pods of a Deployment that were just created, before the controllers
// and the scheduler see them. They never do.
func (u *user) loseCreations() {
	const more = 2
	d := u.aDeployment()
	known := map[types.UID]bool{}
	for _, p := range u.list("app=" + d.Name) {
		known[p.UID] = true
	}
	u.faults.setBlind("pods")
	defer u.faults.setBlind("")
	u.scale(d, *d.Spec.Replicas+more)
	for range 30 { // a controller that has crashed creates none
		pause(time.Second)
		created := slices.DeleteFunc(u.list("app="+d.Name), func(p v1.Pod) bool { return known[p.UID] || p.Spec.NodeName != "" })
		if len(created) < more {
			continue
		}
		for _, p := range created {
			err := u.admin.CoreV1().Pods(namespace).Delete(u.t.Context(), p.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(p.UID))})
			if !apierrors.IsNotFound(err) {
				u.check("delete a pod", err)
			}
		}
		return
	}
}
