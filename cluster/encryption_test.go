package cluster

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	_ "github.com/coracle-io/coracle/internal/bubble"
	"github.com/coracle-io/coracle/internal/podnet"
	"github.com/coracle-io/coracle/internal/wireguard"
)

// TestEncryptedNode checks that a node of an encrypted network makes its key itself,
// publishes the public one in its object whenever that lacks it, and leads to no node
// without one.
func TestEncryptedNode(t *testing.T) {
	o := asJoined(t)
	o.Encrypt = true
	n, err := NewNode(o)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(o.DataDir, "node", "wireguard.key")
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("before the node runs it has a key: %v", err)
	}
	if !slices.Contains(n.proxy.Reserved, 51820) || !slices.Contains(n.proxy.Reserved, podnet.TunnelPort) || !networkConfig(n.settings).Encrypt {
		t.Errorf("the ports %v are reserved, and the network is %+v", n.proxy.Reserved, networkConfig(n.settings))
	}
	client := fake.NewClientset(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "m", Annotations: map[string]string{"other": "stays"}}})
	written := func() *v1.Node {
		node, err := client.CoreV1().Nodes().Get(t.Context(), "m", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return node
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		versions, done := make(chan *v1.Node, 1), make(chan struct{})
		go func() {
			n.encryption.publish(ctx, client, versions)
			close(done)
		}()
		for _, step := range []struct {
			annotation string // before
			writes     int
		}{{"", 1}, {"published", 0}, {"another key", 1}} {
			node := written()
			if step.annotation != "published" {
				node.Annotations[wireguard.Annotation] = step.annotation
			}
			client.ClearActions()
			putLatest(versions, node)
			synctest.Wait()
			writes := 0
			for _, a := range client.Actions() {
				if a.GetVerb() != "get" {
					writes++
				}
			}
			if writes != step.writes {
				t.Errorf("%q: %d writes, want %d", step.annotation, writes, step.writes)
			}
		}
		cancel()
		<-done
	})
	node := written()
	identity := wireguard.ParseIdentity(node.Annotations[wireguard.Annotation])
	if node.Annotations["other"] != "stays" || identity.Port != 51820 {
		t.Errorf("the node is annotated with %v", node.Annotations)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key is %v, %v: want mode 0600", info, err)
	}
	device, err := n.encryption.open(t.Context())
	if err != nil || device.Identity() != identity {
		t.Errorf("the node has another key than it publishes: %v", err)
	}
	n.encryption.stop()
}

// TestKeysOfOthers checks that a node that publishes a key, or another one, is routed
// anew, and that what other nodes keep of its object has the key.
func TestKeysOfOthers(t *testing.T) {
	p := newPeers("m")
	key := wireguard.Identity{Key: wireguard.Key{1}, Port: 51820}
	for i, annotation := range []string{"", key.String(), "no key", wireguard.Identity{Key: wireguard.Key{2}, Port: 51820}.String()} {
		node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "x", Annotations: map[string]string{"other": "much", wireguard.Annotation: annotation}}}
		reduced, err := reduceNode(node)
		if err != nil {
			t.Fatal(err)
		}
		p.set(reduced.(*v1.Node))
		select {
		case <-p.changed:
		default:
			t.Errorf("step %d changes nothing", i)
		}
		if _, others := p.now(); len(others) != 1 || others[0].WireGuard != wireguard.ParseIdentity(annotation) {
			t.Errorf("step %d: the other node is %+v", i, others)
		}
		if left := reduced.(*v1.Node).Annotations; len(left) != 1 {
			t.Errorf("step %d: what is kept has the annotations %v", i, left)
		}
	}
}

// TestEncryptionOfMachines checks which nodes encrypt, and which cannot be.
func TestEncryptionOfMachines(t *testing.T) {
	o := asJoined(t)
	o.Node.Joined, o.Node.Behind, o.AdvertiseAddress = nil, nil, net.IPv4(192, 0, 2, 1)
	o.Node.Count, o.Encrypt = 2, true
	s, err := complete(o)
	if err != nil {
		t.Fatal(err)
	}
	if first, second := newEncryption(s.node(1)), newEncryption(s.node(2)); first == nil || second != nil {
		t.Errorf("the first node encrypts with %+v, and a further one with %+v, want the first alone", first, second)
	}
	if s.Ports.WireGuard != 51820 || networkConfig(s.node(2)).Encrypt {
		t.Errorf("the port is %d, and a further node seals its pods: %v", s.Ports.WireGuard, networkConfig(s.node(2)).Encrypt)
	}
	s.Encrypt = false
	if is := newEncryption(s.node(1)); is != nil {
		t.Errorf("without encryption the first node encrypts with %+v", is)
	}
	o.Node.Count, o.Node.Network = 1, noNetwork
	if _, err := complete(o); err == nil || !strings.HasPrefix(err.Error(), "Encrypt=true: another network connects the pods") {
		t.Errorf("with another network: %v", err)
	}
}
