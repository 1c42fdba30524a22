package script

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

// briefPods makes pods that exit with 1 at once, eight at a time, and deletes each within
// half a second, while it starts: briefpods COUNT. It returns when all are gone, and fails
// if one is ever shown with an exit code that its process cannot have.
func briefPods(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: briefpods COUNT")
	}
	count, err := strconv.Atoi(args[0])
	ts.Check(err)
	client, err := kubernetes.NewForConfig(adminConfig(ts))
	ts.Check(err)
	ctx, cancel := context.WithTimeout(context.Background(), 5*timeout)
	defer cancel()
	seed := rand.Uint64()
	ts.Logf("the seed of the pods is %d", seed)
	const makers = 8
	ended := make(chan error, makers)
	for maker := range makers {
		go func() {
			random := rand.New(rand.NewPCG(seed, uint64(maker)))
			var err error
			for i := maker; i < count && err == nil; i += makers {
				err = briefPod(ctx, client.CoreV1().Pods("default"), fmt.Sprintf("brief-%d", i), time.Duration(random.IntN(500))*time.Millisecond)
			}
			ended <- err
		}()
	}
	var errs []error
	for range makers {
		errs = append(errs, <-ended)
	}
	ts.Check(errors.Join(errs...))
}

// briefPod makes a pod, deletes it after a delay, and watches it until it is gone.
func briefPod(ctx context.Context, pods typedcorev1.PodInterface, name string, delay time.Duration) error {
	watched, err := pods.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		return err
	}
	defer watched.Stop()
	_, err = pods.Create(ctx, &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1.PodSpec{RestartPolicy: v1.RestartPolicyNever, Containers: []v1.Container{{
			Name: "main", Image: "coracle.internal/frontend:1.0", Command: []string{"sh", "-c", "exit 1"},
		}}},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	due := time.After(delay)
	for {
		select {
		case <-due:
			if err := pods.Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
				return err
			}
		case e, ok := <-watched.ResultChan():
			pod, isPod := e.Object.(*v1.Pod)
			if !ok || !isPod {
				return fmt.Errorf("the watch of %s ended: %+v", name, e.Object)
			}
			if err := checkExits(pod); err != nil || e.Type == watch.Deleted {
				return err
			}
		case <-ctx.Done():
			return fmt.Errorf("%s is not gone: %w", name, ctx.Err())
		}
	}
}

// checkExits returns an error if a container of a pod is shown with another exit code than
// those of a shell that ends with 1, or fails to start, or is killed.
func checkExits(pod *v1.Pod) error {
	for _, c := range pod.Status.ContainerStatuses {
		for _, t := range []*v1.ContainerStateTerminated{c.State.Terminated, c.LastTerminationState.Terminated} {
			if t != nil && !slices.Contains([]int32{1, 2, 137}, t.ExitCode) {
				return fmt.Errorf("%s ended with %d, %s: %s", pod.Name, t.ExitCode, t.Reason, t.Message)
			}
		}
	}
	return nil
}
