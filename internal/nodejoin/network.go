package nodejoin

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"

	"github.com/coracle-io/coracle/internal/addresspool"
	"github.com/coracle-io/coracle/internal/bootstraptoken"
)

// NetworkName is the name of the ConfigMap in kube-system with a Network.
const NetworkName = "coracle-network"

// Network is what a node must know of the network of its cluster.
type Network struct {
	// ServiceCIDR and ClusterCIDR are the ranges of Services and pods, each one or two
	// of different families with a comma between.
	ServiceCIDR, ClusterCIDR string
	// NodeMaskSizeIPv4 and NodeMaskSizeIPv6 are the prefix lengths of a node's pod
	// CIDRs.
	NodeMaskSizeIPv4, NodeMaskSizeIPv6 int
	// NodeCIDR has the ranges of the addresses of further nodes on the machine whose
	// first node is called Gateway. Other machines reach those by that one. Both are
	// "" if there are no further nodes.
	NodeCIDR, Gateway string
	// Pods says that another CNI plugin connects the pods (cluster.NodeOptions.Network);
	// "" if the nodes do.
	Pods string
	// Encryption is WireGuard if nodes encrypt what their pods send to other machines, or
	// else "".
	Encryption string
	// NodePorts is the range of the Services' ports on nodes, for servers that join, such
	// as 30000-32767; "" if an earlier version has published the network.
	NodePorts string
	// Etcd has the URLs of the members of etcd for servers that join, with commas between;
	// "" if they cannot.
	Etcd string
}

// WireGuard is the Network.Encryption with the protocol of that name.
const WireGuard = "wireguard"

// Keys of the ConfigMap.
const (
	serviceCIDRKey = "serviceCIDR"
	clusterCIDRKey = "clusterCIDR"
	mask4Key       = "nodeCIDRMaskSizeIPv4"
	mask6Key       = "nodeCIDRMaskSizeIPv6"
	nodeCIDRKey    = "nodeCIDR"
	gatewayKey     = "nodeGateway"
	podsKey        = "podNetwork"
	encryptionKey  = "encryption"
	nodePortsKey   = "nodePorts"
	etcdKey        = "etcdServers"
)

func (n Network) data() map[string]string {
	data := map[string]string{
		serviceCIDRKey: n.ServiceCIDR, clusterCIDRKey: n.ClusterCIDR, mask4Key: strconv.Itoa(n.NodeMaskSizeIPv4), mask6Key: strconv.Itoa(n.NodeMaskSizeIPv6),
	}
	for key, value := range map[string]string{nodeCIDRKey: n.NodeCIDR, gatewayKey: n.Gateway, podsKey: n.Pods, encryptionKey: n.Encryption, nodePortsKey: n.NodePorts, etcdKey: n.Etcd} {
		if value != "" {
			data[key] = value
		}
	}
	return data
}

// Publish writes the network where nodes that join find it.
func (n Network) Publish(ctx context.Context, client kubernetes.Interface) error {
	configMaps := client.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	err := retry.OnError(retry.DefaultRetry, func(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }, func() error {
		have, err := configMaps.Get(ctx, NetworkName, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			_, err = configMaps.Create(ctx, &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: NetworkName, Namespace: metav1.NamespaceSystem}, Data: n.data()}, metav1.CreateOptions{})
			return err
		}
		if err != nil || maps.Equal(have.Data, n.data()) {
			return err
		}
		next := have.DeepCopy()
		next.Data = n.data()
		_, err = configMaps.Update(ctx, next, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("write ConfigMap %s/%s: %w", metav1.NamespaceSystem, NetworkName, err)
	}
	return nil
}

// ReadNetwork returns the network of a cluster, as Publish has written it.
func ReadNetwork(ctx context.Context, client kubernetes.Interface) (Network, error) {
	const place = metav1.NamespaceSystem + "/" + NetworkName
	have, err := client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, NetworkName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return Network{}, fmt.Errorf("the cluster has no ConfigMap %s: coracle up, of this version or a later one, must run its control plane", place)
	}
	if err != nil {
		return Network{}, fmt.Errorf("read ConfigMap %s: %w", place, err)
	}
	n := Network{
		ServiceCIDR: have.Data[serviceCIDRKey], ClusterCIDR: have.Data[clusterCIDRKey], NodeCIDR: have.Data[nodeCIDRKey], Gateway: have.Data[gatewayKey], Pods: have.Data[podsKey],
		Encryption: have.Data[encryptionKey], NodePorts: have.Data[nodePortsKey], Etcd: have.Data[etcdKey],
	}
	if n.Encryption != "" && n.Encryption != WireGuard {
		return Network{}, fmt.Errorf("ConfigMap %s: the pod network is encrypted by %q, which this version does not know: use the version of the control plane", place, n.Encryption)
	}
	ranges := []string{n.ServiceCIDR, n.ClusterCIDR}
	if n.NodeCIDR != "" {
		ranges = append(ranges, n.NodeCIDR)
	}
	for r := range strings.SplitSeq(strings.Join(ranges, ","), ",") {
		if _, err := netip.ParsePrefix(r); err != nil {
			return Network{}, fmt.Errorf("ConfigMap %s: %w", place, err)
		}
	}
	for key, size := range map[string]*int{mask4Key: &n.NodeMaskSizeIPv4, mask6Key: &n.NodeMaskSizeIPv6} {
		if *size, err = strconv.Atoi(have.Data[key]); err != nil {
			return Network{}, fmt.Errorf("ConfigMap %s: %s: want a number", place, key)
		}
	}
	return n, nil
}

// readNetwork returns what lets nodes, and those that join, read the network.
func readNetwork() (*rbacv1.Role, *rbacv1.RoleBinding) {
	return reader(metav1.ObjectMeta{Name: "coracle:node-network", Namespace: metav1.NamespaceSystem},
		"configmaps", NetworkName, []string{"get"}, group(bootstraptoken.DefaultGroup), group(nodesGroup))
}

// readPools returns what lets nodes follow the pools of addresses for which they answer.
func readPools() (*rbacv1.Role, *rbacv1.RoleBinding) {
	return reader(metav1.ObjectMeta{Name: "coracle:node-address-pools", Namespace: metav1.NamespaceSystem},
		"configmaps", addresspool.Name, []string{"get", "list", "watch"}, group(nodesGroup))
}
