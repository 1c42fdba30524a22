package all_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"

	"github.com/coracle-io/coracle/cluster"
	"github.com/coracle-io/coracle/cluster/clustertest"
	"github.com/coracle-io/coracle/internal/controller/controllertest"
	"github.com/coracle-io/coracle/internal/leaktest"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Run(m)) }

// start runs a control plane and returns an administrator's client. The controllers have only the permissions of
// their own roles. The test fails if a component fails.
func start(t *testing.T) kubernetes.Interface {
	t.Helper()
	c := clustertest.Start(t, cluster.Options{InProcess: true})
	t.Cleanup(func() {
		status, _ := c.Status()
		for _, component := range status.Components {
			if component.Restarts > 0 {
				t.Errorf("%s failed: %s", component.Name, component.LastError)
			}
		}
	})
	return c.Client()
}

// makeReady makes the pods of a namespace running and ready, as a kubelet would.
func makeReady(t *testing.T, c kubernetes.Interface, namespace string) {
	t.Helper()
	list, err := c.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range list.Items {
		if p.Status.PodIP != "" {
			continue
		}
		patch := fmt.Sprintf(`{"status":{"phase":"Running","podIP":"10.244.0.%d","podIPs":[{"ip":"10.244.0.%d"}],"conditions":[{"type":"Ready","status":"True","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`, i+2, i+2)
		if _, err := c.CoreV1().Pods(namespace).Patch(t.Context(), p.Name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status"); err != nil {
			t.Fatal(err)
		}
	}
}

// shop is a cluster with a namespace and a node.
type shop struct {
	kubernetes.Interface
	t *testing.T
}

// newShop starts a cluster and waits until its namespace and its node are set up.
func newShop(t *testing.T) *shop {
	t.Helper()
	return setUpShop(t, start(t))
}

func setUpShop(t *testing.T, client kubernetes.Interface) *shop {
	t.Helper()
	c, ctx := &shop{client, t}, t.Context()
	core := c.CoreV1()
	if _, err := core.Namespaces().Create(ctx, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	controllertest.Eventually(t, func() string {
		_, account := core.ServiceAccounts("shop").Get(ctx, "default", metav1.GetOptions{})
		_, bundle := core.ConfigMaps("shop").Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
		return fmt.Sprint(account, bundle)
	}, "<nil> <nil>")
	if _, err := core.Nodes().Create(ctx, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	controllertest.Eventually(t, func() string {
		n, err := core.Nodes().Get(ctx, "n1", metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		return strings.Join(n.Spec.PodCIDRs, " ")
	}, "10.244.0.0/24")
	return c
}

// pods returns the number of pods whose names have a prefix.
func (c *shop) pods(prefix string) func() int {
	return func() int {
		list, err := c.CoreV1().Pods("shop").List(c.t.Context(), metav1.ListOptions{})
		if err != nil {
			c.t.Fatal(err)
		}
		return len(slices.DeleteFunc(list.Items, func(p v1.Pod) bool { return !strings.HasPrefix(p.Name, prefix) }))
	}
}

func podTemplate(app string) (labels map[string]string, template v1.PodTemplateSpec) {
	labels = map[string]string{"app": app}
	return labels, v1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels},
		Spec: v1.PodSpec{Containers: []v1.Container{{
			Name: "c", Image: "web:1", Ports: []v1.ContainerPort{{Name: "http", ContainerPort: 8080}},
		}}},
	}
}

// TestDeployment creates a Deployment with a Service and deletes them with their namespace.
func TestDeployment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, ctx := newShop(t), t.Context()
		labels, template := podTemplate("web")
		template.Spec.NodeName = "n1"
		begin := time.Now()
		if _, err := c.AppsV1().Deployments("shop").Create(ctx, &apps.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: "web"},
			Spec:       apps.DeploymentSpec{Replicas: new(int32(3)), Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		controllertest.Eventually(t, c.pods("web-"), 3)
		t.Logf("the pods of a Deployment were created after %v", time.Since(begin))

		if _, err := c.CoreV1().Services("shop").Create(ctx, &v1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: "web"},
			Spec:       v1.ServiceSpec{ClusterIP: "None", IPFamilies: []v1.IPFamily{v1.IPv4Protocol}, Selector: labels, Ports: []v1.ServicePort{{Port: 80}}},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		makeReady(t, c, "shop")
		controllertest.Eventually(t, func() string {
			d, err := c.AppsV1().Deployments("shop").Get(ctx, "web", metav1.GetOptions{})
			if err != nil {
				return err.Error()
			}
			return fmt.Sprintf("%d available, revision %s", d.Status.AvailableReplicas, d.Annotations["deployment.kubernetes.io/revision"])
		}, "3 available, revision 1")
		controllertest.Eventually(t, func() int {
			slices, err := c.DiscoveryV1().EndpointSlices("shop").List(ctx, metav1.ListOptions{})
			if err != nil || len(slices.Items) != 1 {
				return -1
			}
			return len(slices.Items[0].Endpoints)
		}, 3)
		if err := c.AppsV1().Deployments("shop").Delete(ctx, "web", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		controllertest.Eventually(t, func() int {
			sets, err := c.AppsV1().ReplicaSets("shop").List(ctx, metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return len(sets.Items)
		}, 0)
		c.deleteNamespace()
	})
}

// deleteNamespace deletes the namespace, force deleting terminating pods like a kubelet that
// has stopped them.
func (c *shop) deleteNamespace() {
	c.t.Helper()
	ctx, core := c.t.Context(), c.CoreV1()
	controllertest.Eventually(c.t, func() int {
		list, err := core.Pods("shop").List(ctx, metav1.ListOptions{})
		if err != nil {
			c.t.Fatal(err)
		}
		for _, p := range list.Items {
			if p.DeletionTimestamp != nil {
				_ = core.Pods("shop").Delete(ctx, p.Name, *metav1.NewDeleteOptions(0))
			}
		}
		return len(list.Items)
	}, 0)
	if err := core.Namespaces().Delete(ctx, "shop", metav1.DeleteOptions{}); err != nil {
		c.t.Fatal(err)
	}
	controllertest.Eventually(c.t, func() string {
		ns, err := core.Namespaces().Get(ctx, "shop", metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		return fmt.Sprint(ns.Status)
	}, `namespaces "shop" not found`)
}

// TestForegroundDeletion deletes a ReplicationController in the foreground.
func TestForegroundDeletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, ctx := newShop(t), t.Context()
		_, template := podTemplate("frontend")
		controllers := c.CoreV1().ReplicationControllers("shop")
		if _, err := controllers.Create(ctx, &v1.ReplicationController{
			ObjectMeta: metav1.ObjectMeta{Name: "frontend"},
			Spec:       v1.ReplicationControllerSpec{Replicas: new(int32(3)), Template: &template},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		controllertest.Eventually(t, c.pods("frontend-"), 3)
		foreground := metav1.DeletePropagationForeground
		if err := controllers.Delete(ctx, "frontend", metav1.DeleteOptions{PropagationPolicy: &foreground}); err != nil {
			t.Fatal(err)
		}
		controllertest.Eventually(t, c.pods("frontend-"), 0)
		controllertest.Eventually(t, func() bool {
			_, err := controllers.Get(ctx, "frontend", metav1.GetOptions{})
			return err != nil
		}, true)
	})
}

func TestStatefulSetWithVolumesAndBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, ctx := newShop(t), t.Context()
		labels, template := podTemplate("db")
		selector, name := &metav1.LabelSelector{MatchLabels: labels}, metav1.ObjectMeta{Name: "db"}
		if _, err := c.AppsV1().StatefulSets("shop").Create(ctx, &apps.StatefulSet{ObjectMeta: name, Spec: apps.StatefulSetSpec{
			Replicas: new(int32(2)), Selector: selector, Template: template, ServiceName: "db",
			VolumeClaimTemplates: []v1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}, Spec: v1.PersistentVolumeClaimSpec{
				AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
				Resources:   v1.VolumeResourceRequirements{Requests: v1.ResourceList{v1.ResourceStorage: quantity.MustParse("1Gi")}},
			}}},
		}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := c.CoreV1().PersistentVolumes().Create(ctx, &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "disk"}, Spec: v1.PersistentVolumeSpec{
			Capacity:               v1.ResourceList{v1.ResourceStorage: quantity.MustParse("5Gi")},
			AccessModes:            []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
			PersistentVolumeSource: v1.PersistentVolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/tmp/disk"}},
		}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := c.PolicyV1().PodDisruptionBudgets("shop").Create(ctx, &policy.PodDisruptionBudget{ObjectMeta: name, Spec: policy.PodDisruptionBudgetSpec{
			MaxUnavailable: new(intstr.FromInt32(1)), Selector: selector,
		}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		controllertest.Eventually(t, func() string {
			makeReady(t, c, "shop")
			set, err := c.AppsV1().StatefulSets("shop").Get(ctx, "db", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			pdb, err := c.PolicyV1().PodDisruptionBudgets("shop").Get(ctx, "db", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			disk, err := c.CoreV1().PersistentVolumes().Get(ctx, "disk", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return fmt.Sprintf("%d ready, %d may be disrupted, the disk is %s", set.Status.ReadyReplicas, pdb.Status.DisruptionsAllowed, disk.Status.Phase)
		}, "2 ready, 1 may be disrupted, the disk is Bound")
	})
}

func TestDaemonSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, ctx := newShop(t), t.Context()
		labels, template := podTemplate("agent")
		if _, err := c.AppsV1().DaemonSets("shop").Create(ctx, &apps.DaemonSet{
			ObjectMeta: metav1.ObjectMeta{Name: "agent"},
			Spec:       apps.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template},
		}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		controllertest.Eventually(t, func() string {
			makeReady(t, c, "shop")
			set, err := c.AppsV1().DaemonSets("shop").Get(ctx, "agent", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return fmt.Sprintf("%d of %d, %d updated", set.Status.NumberReady, set.Status.DesiredNumberScheduled, set.Status.UpdatedNumberScheduled)
		}, "1 of 1, 1 updated")
	})
}

// TestJob runs a Job that is deleted as soon as it has finished.
func TestJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, ctx := newShop(t), t.Context()
		_, template := podTemplate("work")
		template.Spec.RestartPolicy = v1.RestartPolicyNever
		if _, err := c.BatchV1().Jobs("shop").Create(ctx, &batch.Job{ObjectMeta: metav1.ObjectMeta{Name: "work"}, Spec: batch.JobSpec{
			Completions: new(int32(2)), Parallelism: new(int32(2)), Template: template, TTLSecondsAfterFinished: new(int32(0)),
		}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		controllertest.Eventually(t, func() bool {
			list, err := c.CoreV1().Pods("shop").List(ctx, metav1.ListOptions{LabelSelector: "app=work"})
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range list.Items {
				if p.Status.Phase != v1.PodSucceeded {
					if _, err := c.CoreV1().Pods("shop").Patch(ctx, p.Name, types.StrategicMergePatchType, []byte(`{"status":{"phase":"Succeeded"}}`), metav1.PatchOptions{}, "status"); err != nil && !apierrors.IsNotFound(err) {
						t.Fatal(err)
					}
				}
			}
			_, err = c.BatchV1().Jobs("shop").Get(ctx, "work", metav1.GetOptions{})
			return apierrors.IsNotFound(err)
		}, true)
	})
}

// Objects that own each other in a cycle are deleted.
func TestOwnerCycle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t)
		maps := c.CoreV1().ConfigMaps("default")
		var made []*v1.ConfigMap
		for _, name := range []string{"a", "b", "c"} {
			m, err := maps.Create(t.Context(), &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"in": "cycle"}}}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			made = append(made, m)
		}
		for i, m := range made {
			owner := made[(i+1)%len(made)]
			m.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID, BlockOwnerDeletion: new(true)}}
			if _, err := maps.Update(t.Context(), m, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		foreground := metav1.DeletePropagationForeground
		if err := maps.Delete(t.Context(), "a", metav1.DeleteOptions{PropagationPolicy: &foreground}); err != nil {
			t.Fatal(err)
		}
		controllertest.Eventually(t, func() int {
			list, err := maps.List(t.Context(), metav1.ListOptions{LabelSelector: "in=cycle"})
			if err != nil {
				t.Fatal(err)
			}
			return len(list.Items)
		}, 0)
	})
}

// An owner reference to another namespace is invalid. The dependent is deleted, and an event
// says why.
func TestOwnerInAnotherNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t)
		core := c.CoreV1()
		owner, err := core.ConfigMaps("kube-public").Create(t.Context(), &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		depend := func(name, uid string) metav1.ObjectMeta {
			return metav1.ObjectMeta{Name: name, OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: types.UID(uid)},
			}}
		}
		for name, uid := range map[string]string{"a": string(owner.UID), "b": string(owner.UID), "c": "nowhere"} {
			if _, err := core.ConfigMaps("default").Create(t.Context(), &v1.ConfigMap{ObjectMeta: depend(name, uid)}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := core.Namespaces().Create(t.Context(), &v1.Namespace{ObjectMeta: depend("d", string(owner.UID))}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"a", "b", "c"} {
			controllertest.Eventually(t, func() bool {
				_, err := core.ConfigMaps("default").Get(t.Context(), name, metav1.GetOptions{})
				return apierrors.IsNotFound(err)
			}, true)
		}
		controllertest.Eventually(t, func() string {
			list, err := core.Events("default").List(t.Context(), metav1.ListOptions{FieldSelector: "reason=OwnerRefInvalidNamespace"})
			if err != nil {
				t.Fatal(err)
			}
			var messages []string
			for _, e := range list.Items {
				messages = append(messages, fmt.Sprintf("%s %s %s/%s: %s", e.Type, e.InvolvedObject.APIVersion, e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Message))
			}
			slices.Sort(messages)
			return strings.ReplaceAll(strings.Join(messages, "\n"), string(owner.UID), "UID")
		}, `Warning v1 ConfigMap/a: ownerRef [v1/ConfigMap, namespace: default, name: owner, uid: UID] does not exist in namespace "default"
Warning v1 ConfigMap/b: ownerRef [v1/ConfigMap, namespace: default, name: owner, uid: UID] does not exist in namespace "default"
Warning v1 Namespace/d: ownerRef [v1/ConfigMap, namespace: , name: owner, uid: UID] does not exist in namespace ""`)
	})
}
