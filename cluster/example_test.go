package cluster_test

import (
	"context"
	"fmt"
	"log"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/coracle-io/coracle/cluster"
	"github.com/coracle-io/coracle/cluster/clustertest"
)

// start runs a control plane until stop is called.
func start(o cluster.Options) (c *cluster.Cluster, stop func()) {
	c, err := cluster.New(o)
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	select {
	case <-c.APIReady():
	case err := <-ended:
		log.Fatal(err)
	}
	return c, func() {
		cancel()
		if err := <-ended; err != nil {
			log.Fatal(err)
		}
	}
}

// A control plane with all controllers, which make the pod of a Deployment.
func Example() {
	c, stop := start(cluster.Options{})
	defer stop()
	ctx := context.Background()
	if _, err := c.Client().AppsV1().Deployments("default").Create(ctx, deployment("web"), metav1.CreateOptions{}); err != nil {
		log.Fatal(err)
	}
	pods, err := c.Client().CoreV1().Pods("default").Watch(ctx, metav1.ListOptions{LabelSelector: "app=web"})
	if err != nil {
		log.Fatal(err)
	}
	defer pods.Stop()
	pod := (<-pods.ResultChan()).Object.(*corev1.Pod)
	fmt.Println(pod.GenerateName[:4], pod.OwnerReferences[0].Kind, pod.Status.Phase)
	// Output: web- ReplicaSet Pending
}

// greet is the controller under test: it writes a greeting into each namespace
// with the label greet.
func greet(ctx context.Context, config *rest.Config) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	if _, err := factory.Core().V1().Namespaces().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(obj any) {
		namespace := obj.(*corev1.Namespace)
		if name, ok := namespace.Labels["greet"]; ok {
			greeting := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "greeting"}, Data: map[string]string{"text": "hello " + name}}
			if _, err := client.CoreV1().ConfigMaps(namespace.Name).Create(ctx, greeting, metav1.CreateOptions{}); err != nil {
				log.Print(err)
			}
		}
	}}); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	<-ctx.Done()
	factory.Shutdown()
	return nil
}

// A controller under test, as with envtest: it gets a *rest.Config, over HTTPS,
// and runs against a whole control plane.
func ExampleCluster_Config() {
	c, stop := start(cluster.Options{})
	defer stop()
	ctx, cancel := context.WithCancel(context.Background())
	var controller sync.WaitGroup
	controller.Go(func() {
		if err := greet(ctx, c.Config()); err != nil {
			log.Print(err)
		}
	})
	defer controller.Wait()
	defer cancel()

	if _, err := c.Client().CoreV1().Namespaces().Create(ctx, &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: "team", Labels: map[string]string{"greet": "world"}},
	}, metav1.CreateOptions{}); err != nil {
		log.Fatal(err)
	}
	err := wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		greeting, err := c.Client().CoreV1().ConfigMaps("team").Get(ctx, "greeting", metav1.GetOptions{})
		if err == nil {
			fmt.Println(greeting.Data["text"])
		}
		return err == nil, nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output: hello world
}

// Several clusters in one process are independent of each other.
func ExampleNew_several() {
	for _, o := range []cluster.Options{
		{},
		{APIServerArgs: []string{"runtime-config=batch/v1=false"}},
	} {
		c, stop := start(o)
		defer stop()
		_, err := c.Client().BatchV1().Jobs("default").List(context.Background(), metav1.ListOptions{})
		fmt.Println(err)
	}
	// Output:
	// <nil>
	// the server could not find the requested resource (get jobs.batch)
}

// Under testing/synctest, time passes only while all goroutines wait, so a test
// need not wait the five minutes until the pod of a dead node is evicted. It needs
// InProcess: that time stands still while a goroutine waits for a socket. Requests
// over HTTPS, webhooks, aggregated API servers, etcd and nodes need sockets, too,
// and do not work there.
func TestAnEvictionAfterFiveMinutesTakesNoTime(t *testing.T) {
	real := time.Now()
	synctest.Test(t, func(t *testing.T) {
		c := clustertest.Start(t, cluster.Options{InProcess: true})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		makeNode(ctx, t, c.Client(), "dies")
		_, err := c.Client().AppsV1().Deployments("default").Create(ctx, deployment("web"), metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		until(t, func() bool { return podOn(ctx, t, c.Client(), "dies") != nil })
		makeNode(ctx, t, c.Client(), "lives")
		go keepAlive(ctx, c.Client(), "lives")

		died := time.Now()
		until(t, func() bool {
			pod := podOn(ctx, t, c.Client(), "dies")
			return pod == nil || pod.DeletionTimestamp != nil
		})
		evicted := time.Since(died).Round(time.Minute)
		if evicted < 5*time.Minute || evicted > 7*time.Minute {
			t.Errorf("the pod was evicted after %v", evicted)
		}
		until(t, func() bool { return podOn(ctx, t, c.Client(), "lives") != nil })
	})
	t.Logf("that took %v", time.Since(real))
}

// until waits for a condition, in virtual time.
func until(t *testing.T, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Hour); !condition(); time.Sleep(time.Second) {
		if time.Now().After(deadline) {
			t.Fatal("it does not become so")
		}
	}
}

func deployment(name string) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "web:1"}}},
			},
		},
	}
}

// podOn returns the pod on a node, or nil.
func podOn(ctx context.Context, t *testing.T, client kubernetes.Interface, node string) *corev1.Pod {
	t.Helper()
	pods, err := client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	if err != nil {
		t.Fatal(err)
	}
	if len(pods.Items) == 0 {
		return nil
	}
	return &pods.Items[0]
}

// makeNode registers a Ready node, as a kubelet does.
func makeNode(ctx context.Context, t *testing.T, client kubernetes.Interface, name string) {
	t.Helper()
	_, err := client.CoreV1().Nodes().Create(ctx, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status: corev1.NodeStatus{
			Allocatable: corev1.ResourceList{"cpu": resource.MustParse("4"), "memory": resource.MustParse("8Gi"), "pods": resource.MustParse("110")},
			Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now()}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	until(t, func() bool {
		node, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		return err == nil && len(node.Spec.Taints) == 0
	})
}

// keepAlive renews a node's lease until ctx ends, as a kubelet does.
func keepAlive(ctx context.Context, client kubernetes.Interface, node string) {
	leases := client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	_, _ = leases.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: node}}, metav1.CreateOptions{})
	for ctx.Err() == nil {
		renewed := fmt.Sprintf(`{"spec":{"holderIdentity":%q,"renewTime":%q}}`, node, time.Now().UTC().Format(metav1.RFC3339Micro))
		_, _ = leases.Patch(ctx, node, types.MergePatchType, []byte(renewed), metav1.PatchOptions{})
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Second):
		}
	}
}
