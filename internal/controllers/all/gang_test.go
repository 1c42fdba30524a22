package all_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	schedulingapi "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/meta"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/cluster"
	"github.com/coracle-io/coracle/cluster/clustertest"
	"github.com/coracle-io/coracle/internal/controller/controllertest"
)

// TestGang creates the pods of a PodGroup one after the other. None is bound
// before all of them have a place.
func TestGang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := setUpShop(t, clustertest.Start(t, cluster.Options{
			InProcess:     true,
			APIServerArgs: []string{"feature-gates=GenericWorkload=true", "runtime-config=scheduling.k8s.io/v1beta1=true"},
			SchedulerArgs: []string{"feature-gates=GenericWorkload=true"},
		}).Client())
		ctx := t.Context()
		create := func(name string) {
			t.Helper()
			_, template := podTemplate(name)
			template.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: new("gang")}
			template.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: quantity.MustParse("6")} // one on a node
			if _, err := c.CoreV1().Pods("shop").Create(ctx, &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: template.Spec}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		bound := func() string {
			list, err := c.CoreV1().Pods("shop").List(ctx, metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			var nodes []string
			for _, p := range list.Items {
				if p.Spec.NodeName != "" {
					nodes = append(nodes, p.Spec.NodeName)
				}
			}
			slices.Sort(nodes)
			return fmt.Sprintf("%d pods, on %s", len(list.Items), strings.Join(nodes, " "))
		}
		c.addNode("n2")
		c.addNode("n3")
		create("a")
		group := &schedulingapi.PodGroup{ObjectMeta: metav1.ObjectMeta{Name: "gang"}}
		group.Spec.SchedulingPolicy.Gang = &schedulingapi.GangSchedulingPolicy{MinCount: 3}
		if _, err := c.SchedulingV1beta1().PodGroups("shop").Create(ctx, group, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		create("b")
		create("c")
		controllertest.Eventually(t, func() bool { return strings.Contains(c.unschedulable(), "Insufficient cpu") }, true)
		if got, want := bound(), "3 pods, on "; got != want {
			t.Errorf("with two nodes: %s, want %s", got, want)
		}
		condition := func() string {
			g, err := c.SchedulingV1beta1().PodGroups("shop").Get(ctx, "gang", metav1.GetOptions{})
			if err != nil {
				return err.Error()
			}
			found := meta.FindStatusCondition(g.Status.Conditions, schedulingapi.PodGroupInitiallyScheduled)
			if found == nil {
				return ""
			}
			return string(found.Status) + " " + found.Reason
		}
		controllertest.Eventually(t, condition, "False Unschedulable")
		c.addNode("n4")
		controllertest.Eventually(t, bound, "3 pods, on n2 n3 n4")
		controllertest.Eventually(t, condition, "True Scheduled")
		finalizers := func() string {
			g, err := c.SchedulingV1beta1().PodGroups("shop").Get(ctx, "gang", metav1.GetOptions{})
			if err != nil {
				return err.Error()
			}
			return strings.Join(g.Finalizers, " ")
		}
		controllertest.Eventually(t, finalizers, "scheduling.k8s.io/podgroup-protection")
	})
}
