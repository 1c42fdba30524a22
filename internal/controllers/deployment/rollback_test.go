package deployment_test

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	apps "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/controller/controllertest"
	"github.com/coracle-io/coracle/internal/controllers/deployment"
	"github.com/coracle-io/coracle/internal/controllers/replicaset"
)

// The annotation of the former field spec.rollbackTo rolls back once, also the annotations that the
// ReplicaSets have. It is removed in any case.
func TestRollbackTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const note = "example.com/note"
		d := web("one", apps.RollingUpdateDeploymentStrategyType)
		d.Annotations = map[string]string{note: "first", apps.DeprecatedRollbackTo: "0"}
		c := controllertest.New(t, d)
		kubelet(t, c)
		c.Run(replicaset.Descriptor())
		c.Run(deployment.Descriptor())
		stored := func() *apps.Deployment {
			t.Helper()
			d, err := c.Fake.AppsV1().Deployments("default").Get(t.Context(), "web", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return d
		}
		change := func(f func(d *apps.Deployment)) {
			t.Helper()
			synctest.Wait()
			d := stored()
			f(d)
			if _, err := c.Fake.AppsV1().Deployments("default").Update(t.Context(), d, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		settles := func(image, wantProgress, wantNote string) {
			t.Helper()
			controllertest.Eventually(t, images(c), strings.TrimSpace(strings.Repeat(image+" ", 3)))
			controllertest.Eventually(t, progress(t, c), wantProgress)
			controllertest.Eventually(t, func() string { return stored().Annotations[apps.DeprecatedRollbackTo] }, "")
			if got := stored().Annotations[note]; got != wantNote {
				t.Errorf("after %s, the annotation is %q, want %q", wantProgress, got, wantNote)
			}
		}
		ask := func(revision string) {
			t.Helper()
			change(func(d *apps.Deployment) { d.Annotations[apps.DeprecatedRollbackTo] = revision })
		}
		settles("one", "NewReplicaSetAvailable 1", "first")
		change(func(d *apps.Deployment) {
			d.Spec.Template.Spec.Containers[0].Image = "two"
			d.Annotations[note] = "second"
		})
		settles("two", "NewReplicaSetAvailable 2", "second")
		ask("0")
		settles("one", "NewReplicaSetAvailable 3", "first")
		ask("2")
		settles("two", "NewReplicaSetAvailable 4", "second")
		ask("9")
		settles("two", "NewReplicaSetAvailable 4", "second")
		ask("4")
		settles("two", "NewReplicaSetAvailable 4", "second")

		change(func(d *apps.Deployment) {
			d.Spec.Paused = true
			d.Annotations[apps.DeprecatedRollbackTo] = "3"
		})
		controllertest.Eventually(t, progress(t, c), "DeploymentPaused 4")
		if got := stored().Annotations[apps.DeprecatedRollbackTo]; got != "3" {
			t.Errorf("the annotation of a paused Deployment is %q", got)
		}

		events := slices.DeleteFunc(c.DrainEvents(), func(e string) bool { return !strings.Contains(e, "DeploymentRollback") })
		want := []string{
			`Warning DeploymentRollbackRevisionNotFound Unable to find last revision.`,
			`Normal DeploymentRollback Rolled back deployment "web" to revision 1`,
			`Normal DeploymentRollback Rolled back deployment "web" to revision 2`,
			`Warning DeploymentRollbackRevisionNotFound Unable to find the revision to rollback to.`,
			`Warning DeploymentRollbackTemplateUnchanged The rollback revision contains the same template as current deployment "web"`,
		}
		if !slices.Equal(events, want) {
			t.Errorf("events:\n%s\nwant:\n%s", strings.Join(events, "\n"), strings.Join(want, "\n"))
		}
	})
}
