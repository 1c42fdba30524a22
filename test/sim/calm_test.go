package sim

import (
	"fmt"
	"maps"
	"slices"
	"time"

	batch "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"github.com/coracle-io/coracle/internal/simnode"
)

// calm is a user once the faults have stopped. Nothing delays what happens then, so that
// it has bounds of time.
type calm struct{ *user }

const (
	// forgotten is how long controllers wait at most for pods that they do not see.
	forgotten = 6 * time.Minute
	// prompt is how long it takes at most to scale a Deployment.
	prompt = 2 * time.Minute
	// daemonReady is how long pods of the DaemonSet take to become ready during its
	// roll-outs.
	daemonReady = 80 * time.Second
)

// createUnreachableCronJob creates a CronJob that is never due. An event about it that is
// refused would be lost.
func (c calm) createUnreachableCronJob() {
	cj := &batch.CronJob{ObjectMeta: metav1.ObjectMeta{Name: "never"}, Spec: batch.CronJobSpec{Schedule: "0 0 31 2 *"}}
	cj.Spec.JobTemplate.Spec.Template = c.template("cronjob", "never", nil)
	cj.Spec.JobTemplate.Spec.Template.Spec.RestartPolicy = v1.RestartPolicyNever
	_, err := c.admin.BatchV1().CronJobs(namespace).Create(c.t.Context(), cj, metav1.CreateOptions{})
	c.check("create a cronjob", err)
}

// scaleTwice scales each Deployment up, and again. What its controllers did not see while there
// were faults does not delay that.
func (c calm) scaleTwice() {
	pause(forgotten)
	for _, name := range slices.Sorted(maps.Keys(c.deployments)) {
		wanted := c.deployments[name]
		for range 2 {
			c.scale(wanted, *wanted.Spec.Replicas+1)
			c.until(prompt, func() string { return c.unconvergedDeployment(wanted) })
		}
	}
}

// rollOutDaemons rolls out the DaemonSet while its pods on one node fail, each time after a
// longer back-off. The other nodes do not wait for that node. As many pods may be unavailable
// as there are on two nodes, so that they are updated one after the other:
//
//	     0 s            80 s           160 s
//	node A updated ─ready─► B updated ─ready─► C updated
//	node X fails, 2, 5, 10, 19, 36, 69, 134 and 263 s after the begin: back-offs of 1, 2, 4 s and so on
func (c calm) rollOutDaemons() {
	c.updateDaemons("first") // from now on, pods that fail have not been ready before
	c.until(convergence, c.unconvergedDaemons)
	failing := c.aNode()
	c.failDaemon(failing)
	pause(2 * time.Second)
	image := c.updateDaemons("second")
	c.until(2*daemonReady+50*time.Second, func() string {
		c.failDaemon(failing)
		var outdated []string
		for _, p := range c.list(daemons + "=" + daemons) {
			if p.Spec.NodeName != failing && active(&p) && p.Spec.Containers[0].Image != image {
				outdated = append(outdated, p.Spec.NodeName)
			}
		}
		if len(outdated) > 0 {
			return fmt.Sprintf("daemonset %s is rolled out on %v while its pods on %s fail", daemons, outdated, failing)
		}
		return ""
	})
}

// updateDaemons changes the template of the DaemonSet. It returns the image of its new pods.
func (c calm) updateDaemons(version string) (image string) {
	template := c.template(daemons, daemons, map[string]string{simnode.AnnotationReadyAfter: daemonReady.String()})
	image = "example.com/main:" + version
	template.Spec.Containers[0].Image = image
	c.check("update a daemonset", retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		set, err := c.admin.AppsV1().DaemonSets(namespace).Get(c.t.Context(), daemons, metav1.GetOptions{})
		if err == nil {
			set.Spec.Template = template
			_, err = c.admin.AppsV1().DaemonSets(namespace).Update(c.t.Context(), set, metav1.UpdateOptions{})
		}
		return err
	}))
	return image
}

// failDaemon makes the pod of the DaemonSet on a node fail.
func (c calm) failDaemon(node string) {
	for _, p := range c.list(daemons + "=" + daemons) {
		if p.Spec.NodeName == node && active(&p) {
			c.patchPod(p.Name, hasFailed, "status")
		}
	}
}
