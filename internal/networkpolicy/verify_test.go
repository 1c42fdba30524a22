package networkpolicy

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	clientfake "k8s.io/client-go/kubernetes/fake"
	typednetworkingv1 "k8s.io/client-go/kubernetes/typed/networking/v1"

	"github.com/coracle-io/coracle/internal/client"
)

// server is an API server that lists policies in parts, once it may.
type server struct {
	kubernetes.Interface
	policies []networkingv1.NetworkPolicy
	open     chan struct{}
	asked    atomic.Int64
	longest  atomic.Int64 // page
}

func (s *server) NetworkingV1() typednetworkingv1.NetworkingV1Interface {
	return serverNetworking{s.Interface.NetworkingV1(), s}
}

type serverNetworking struct {
	typednetworkingv1.NetworkingV1Interface
	server *server
}

func (n serverNetworking) NetworkPolicies(namespace string) typednetworkingv1.NetworkPolicyInterface {
	return serverPolicies{n.NetworkingV1Interface.NetworkPolicies(namespace), n.server}
}

type serverPolicies struct {
	typednetworkingv1.NetworkPolicyInterface
	server *server
}

func (p serverPolicies) List(ctx context.Context, o metav1.ListOptions) (*networkingv1.NetworkPolicyList, error) {
	l := p.server
	l.asked.Add(1)
	select {
	case <-l.open:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	from, _ := strconv.Atoi(o.Continue) // "" is 0
	to := len(l.policies)
	if o.Limit > 0 {
		to = min(to, from+int(o.Limit))
	}
	list := &networkingv1.NetworkPolicyList{Items: l.policies[from:to]}
	if to < len(l.policies) {
		list.Continue = strconv.Itoa(to)
	}
	l.longest.Store(max(l.longest.Load(), int64(to-from)))
	return list, nil
}

// One of the pods of a namespace that start together asks for its policies, a part of
// them at a time. All of them together could fill the node's memory.
func TestOnePodAsksForThePoliciesOfItsNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &server{Interface: clientfake.NewClientset(), open: make(chan struct{})}
		e := New(Config{NodeName: "here", Backend: &kernel{}})
		s, err := e.begin(&client.Client{Kubernetes: l})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 45 {
			p := denyAll()
			p.Name = fmt.Sprintf("policy-%d", i)
			s.setPolicy(p)
			l.policies = append(l.policies, *p)
		}
		const pods = 30
		admitted := make(chan error, pods)
		for i := range pods {
			p := podOf(fmt.Sprintf("pod-%d", i), nil)
			s.setPod(p)
			go func() { admitted <- e.Admit(t.Context(), p, false, []string{fmt.Sprintf("10.1.0.%d", i+2)}) }()
		}
		synctest.Wait()
		if n := l.asked.Load(); n != 1 {
			t.Errorf("%d pods ask %d times at once", pods, n)
		}
		close(l.open)
		synctest.Wait()
		// A second time for the pods that came after the first request.
		if n, longest := l.asked.Load(), l.longest.Load(); n > 6 || longest != 20 {
			t.Errorf("%d policies were listed by %d requests, of up to %d", len(l.policies), n, longest)
		}
		_, generation := s.rules()
		e.done(s, generation, nil)
		synctest.Wait()
		for range pods {
			select {
			case err := <-admitted:
				if err != nil {
					t.Error(err)
				}
			default:
				t.Fatal("a pod waits although its policies are known and applied")
			}
		}
	})
}
