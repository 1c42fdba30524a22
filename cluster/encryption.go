package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/internal/supervise"
	"github.com/coracle-io/coracle/internal/wireguard"
)

// encryption is the first node's part of an encrypted pod network. The methods of nil
// do nothing: the network is not encrypted.
type encryption struct {
	file string // of the private key, which the node makes, and nobody else reads
	port uint16 // UDP

	mu     sync.Mutex        // guards what follows
	device *wireguard.Device // nil before open has returned it
}

// newEncryption returns nil for a further node, whose packets to other machines the
// first one encrypts.
func newEncryption(o *settings) *encryption {
	if !o.Encrypt || o.further() {
		return nil
	}
	return &encryption{file: filepath.Join(nodeDir(o.DataDir), "wireguard.key"), port: uint16(o.Ports.WireGuard)}
}

// open returns what keeps the interface to other machines, with the key of this node,
// which it makes the first time. It returns nil for nil.
func (e *encryption) open(ctx context.Context) (*wireguard.Device, error) {
	if e == nil {
		return nil, nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.device == nil {
		key, err := wireguard.LoadKey(e.file)
		if err != nil {
			return nil, err
		}
		log := klog.FromContext(ctx)
		e.device = wireguard.New(key, e.port, func(format string, args ...any) { log.V(1).Info("WireGuard: " + fmt.Sprintf(format, args...)) })
	}
	return e.device, nil
}

// stop ends what this process does for the interface.
func (e *encryption) stop() {
	if e == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.device != nil {
		e.device.Stop()
	}
}

// publishTimeout bounds one write of publish.
const publishTimeout = 10 * time.Second

// publish writes the public key of this node into each version of its object that does
// not have it, until ctx ends. Of all nodes, the node itself alone may write there.
func (e *encryption) publish(ctx context.Context, client kubernetes.Interface, versions <-chan *v1.Node) {
	if e == nil {
		return
	}
	retry := time.NewTicker(networkPeriod)
	defer retry.Stop()
	var node *v1.Node // which may lack the key
	for {
		select {
		case <-ctx.Done():
			return
		case node = <-versions:
		case <-retry.C:
		}
		if node == nil {
			continue
		}
		err := e.write(ctx, client, node)
		supervise.Report(ctx, "Key", err)
		if err == nil {
			node = nil
		} else if ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Publishing the key of this node failed, will try again", "in", networkPeriod)
		}
	}
}

// write writes the public key into the object of the node, unless it is there.
func (e *encryption) write(ctx context.Context, client kubernetes.Interface, node *v1.Node) error {
	device, err := e.open(ctx)
	if err != nil {
		return err
	}
	identity := device.Identity().String()
	if node.Annotations[wireguard.Annotation] == identity {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{wireguard.Annotation: identity}}})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	_, err = client.CoreV1().Nodes().Patch(ctx, node.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}
