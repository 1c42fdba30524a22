package ttl

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coracle-io/coracle/internal/controller/controllertest"
)

func node(i int) *v1.Node {
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", i)}}
}

// The TTL grows and shrinks with the number of nodes, and every node gets it.
func TestAnnotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := controllertest.New(t, node(0), node(1))
		running, err := newController(cluster.Env)
		if err != nil {
			t.Fatal(err)
		}
		c, ended := running.(*nodes), make(chan error, 1)
		ctx, stop := context.WithCancel(t.Context())
		go func() { ended <- c.Run(ctx) }()
		defer func() {
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()
		made := 2
		for _, step := range []struct {
			nodes int
			want  string
		}{
			{2, "0"}, {100, "0"}, {101, "15"}, {90, "15"}, {89, "0"}, {501, "30"}, {12000, "300"}, {1799, "60"},
		} {
			for ; made < step.nodes; made++ {
				c.nodeChanged(nil, node(made))
			}
			for ; made > step.nodes; made-- {
				c.nodeChanged(node(made-1), nil)
			}
			synctest.Wait()
			list, err := cluster.Fake.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range list.Items {
				if got := n.Annotations["node.alpha.kubernetes.io/ttl"]; got != step.want {
					t.Errorf("%d nodes: %s has %q, want %s", step.nodes, n.Name, got, step.want)
				}
			}
		}
	})
}
