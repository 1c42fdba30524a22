package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/coracle-io/coracle/cluster"
	"github.com/coracle-io/coracle/internal/bootstraptoken"
	"github.com/coracle-io/coracle/internal/component/apiserver"
	"github.com/coracle-io/coracle/internal/host"
	"github.com/coracle-io/coracle/internal/nodejoin"
	"github.com/coracle-io/coracle/internal/pki"
	"github.com/coracle-io/coracle/internal/store/etcd"
)

// The ports of a member of etcd in a cluster of several servers, which are higher by
// portsOfSlot in each further slot of the machine.
const (
	etcdClientPort = 2379
	etcdPeerPort   = 2380
	portsOfSlot    = 20
)

// memberAt returns the arguments of a member of etcd that is called name and reached at
// an address, and its peer URL.
func memberAt(name string, address net.IP, slot int) (arguments []string, peerURL string) {
	at := func(port int) string {
		return "https://" + net.JoinHostPort(address.String(), strconv.Itoa(port+slot*portsOfSlot))
	}
	peerURL = at(etcdPeerPort)
	return []string{"name=" + name, "initial-advertise-peer-urls=" + peerURL, "listen-client-urls=" + at(etcdClientPort)}, peerURL
}

// addressOf returns the address at which other machines reach the server with these
// options.
func addressOf(o cluster.Options) (net.IP, error) {
	api := apiserver.NewOptions()
	api.Serving.BindAddress, api.Serving.AdvertiseAddress = net.ParseIP(o.BindAddress), o.AdvertiseAddress
	if text := lastArgument(o.APIServerArgs, "advertise-address"); text != "" {
		api.Serving.AdvertiseAddress = net.ParseIP(text)
	}
	return api.Advertised()
}

// isMember reports whether a cluster on this machine has a member of an etcd that other
// servers can join.
func isMember(o cluster.Options) bool {
	return lastArgument(o.EtcdArgs, "initial-advertise-peer-urls") != "" && lastArgument(o.EtcdArgs, "listen-client-urls") != ""
}

// listenForServers makes a new cluster one that other servers can join. It returns an
// error for one that is there and is none.
func listenForServers(s *host.Settings, isNew bool) error {
	o := &s.Options
	switch {
	case isMember(*o):
		return nil
	case !isNew:
		return fmt.Errorf("--several-servers: cluster %s is there, and its etcd has one member: start another cluster with the flag", o.Name)
	case len(o.Etcd.Servers) > 0 || len(o.EtcdArgs) > 0:
		return errors.New("--several-servers sets the etcd of the cluster up: leave --etcd-servers and --etcd-arg out")
	}
	address, err := addressOf(*o)
	if err != nil {
		return err
	}
	arguments, peerURL := memberAt(o.NodeName, address, s.Slot)
	o.EtcdArgs = append(arguments, "initial-cluster="+o.NodeName+"="+peerURL)
	return nil
}

// keysDirOf returns the directory of the keys of a cluster on this machine.
func keysDirOf(rec host.Record, o cluster.Options) string {
	return cmp.Or(lastArgument(o.APIServerArgs, "cert-dir"), filepath.Join(rec.DataDir, "pki"))
}

// serverKeys returns the directory of the keys of a cluster on this machine that other
// servers can join, and has the given authority.
func serverKeys(name string, authority []byte) (string, error) {
	rec, err := mustFind(host.NewRegistry(host.Root()), name)
	if err != nil {
		return "", err
	}
	settings, err := host.ReadSettings(rec.DataDir)
	if err != nil {
		return "", err
	}
	switch {
	case rec.Node.Joined != nil:
		return "", fmt.Errorf("this machine has a node of cluster %s: run it on one of its servers", name)
	case !isMember(settings.Options):
		return "", fmt.Errorf("cluster %s has one server: others can join a cluster that began with coracle up --several-servers", name)
	}
	dir := keysDirOf(rec, settings.Options)
	own, err := os.ReadFile(filepath.Join(dir, pki.ClusterAuthority+".crt"))
	if err != nil {
		return "", err
	}
	if !bytes.Equal(bytes.TrimSpace(own), bytes.TrimSpace(authority)) {
		return "", fmt.Errorf("the kubeconfig is not that of cluster %s: choose its context with --context, or the cluster on this machine with --name", name)
	}
	return dir, nil
}

// serverFlags are the flags of join for servers alone.
func serverFlags() []string {
	return []string{"nodes", "kubeconfig", "bind-address", "secure-port", "apiserver-arg", "controller-manager-arg", "scheduler-arg", "certificate-key"}
}

// checkServer checks the flags of a server, or that there are none for a node.
func (f *joinFlags) checkServer() error {
	if !f.server {
		for _, name := range serverFlags() {
			if slices.Contains(f.up.set, name) {
				return fmt.Errorf("--%s is for servers: give --control-plane with it", name)
			}
		}
		return nil
	}
	if _, ok := nodejoin.ParseCertificateKey(f.certificateKey); !ok {
		return errors.New("--certificate-key: want 64 hexadecimal digits: coracle token create --control-plane prints them")
	}
	return nil
}

// joinAsServer makes this machine a server of the cluster with an API server at
// HOST:PORT.
func (f *joinFlags) joinAsServer(ctx context.Context, registry host.Registry, endpoint string) (err error) {
	name := f.up.settings.Options.Name
	rec, err := registry.Find(name)
	switch {
	case errors.Is(err, host.ErrNoCluster):
	case err != nil:
		return err
	default:
		settings, err := host.ReadSettings(rec.DataDir)
		if err != nil {
			return err
		}
		if rec.Node.Joined != nil || lastArgument(settings.Options.EtcdArgs, "initial-cluster-state") != "existing" {
			return fmt.Errorf("cluster %s is on this machine, and is no server of another one: choose another --name", name)
		}
		if rec.Served || settings.HoldsMember() { // it has joined
			f.up.existing = true
			return up(ctx, f.up)
		}
	}
	dir, err := os.MkdirTemp("", "coracle-join-")
	if err != nil {
		return err
	}
	defer func() {
		if removed := os.RemoveAll(dir); err == nil { // it has keys
			err = removed
		}
	}()
	members, id, err := f.addMember(ctx, registry, endpoint, dir)
	if err != nil {
		return err
	}
	defer func() { _ = members.Close() }()
	err = up(ctx, f.up)
	if err == nil {
		return nil
	}
	if _, there := registry.Find(name); errors.Is(there, host.ErrNoCluster) { // it was rolled back
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerTimeout)
		defer cancel()
		err = errors.Join(err, members.Remove(last, id))
	}
	return err
}

// addMember adds a member of etcd for this machine to a cluster, and sets how up runs
// it. The caller must close the members, and remove the directory of their keys then.
func (f *joinFlags) addMember(ctx context.Context, registry host.Registry, endpoint, dir string) (members *etcd.Members, id uint64, err error) {
	fmt.Printf("Asking %s for the cluster.\n", endpoint)
	ctx, cancel := context.WithTimeout(ctx, f.up.timeout)
	defer cancel()
	found, token, err := f.ask(ctx, endpoint)
	if err != nil {
		return nil, 0, err
	}
	s := &f.up.settings
	if s.Options.NodeName, err = f.nodeName(); err != nil {
		return nil, 0, err
	}
	network, keys, err := f.read(ctx, found, token, s.Options.NodeName)
	if err != nil {
		return nil, 0, err
	}
	all, err := registry.List(warn)
	if err != nil {
		return nil, 0, err
	}
	address, err := addressOf(s.Options)
	if err != nil {
		return nil, 0, err
	}
	arguments, peerURL := memberAt(s.Options.NodeName, address, s.FreeSlot(all))
	if members, err = dialEtcd(network.Etcd, keys, dir); err != nil {
		return nil, 0, err
	}
	fmt.Printf("Adding a member at %s to etcd.\n", peerURL)
	id, initial, err := members.Add(ctx, s.Options.NodeName, peerURL)
	if err != nil {
		return nil, 0, errors.Join(err, members.Close())
	}
	s.Options.EtcdArgs = append(arguments, "initial-cluster="+initial, "initial-cluster-state=existing")
	s.Options.ServiceCIDR, s.Options.ClusterCIDR = network.ServiceCIDR, network.ClusterCIDR
	setNodes(s.Options.Node, network)
	f.up.keys = func(rec host.Record) error { return keys.Write(keysDirOf(rec, s.Options)) }
	return members, id, nil
}

// read returns the network of a cluster and the keys of its servers.
func (f *joinFlags) read(ctx context.Context, c *nodejoin.Cluster, token bootstraptoken.Token, node string) (nodejoin.Network, nodejoin.Keys, error) {
	network, err := networkOf(ctx, c, token, node)
	if err != nil {
		return network, nil, err
	}
	if network.Etcd == "" {
		return network, nil, errors.New("the cluster has one server: others can join a cluster that began with coracle up --several-servers")
	}
	client, err := clientWith(c, token)
	if err != nil {
		return network, nil, err
	}
	key, _ := nodejoin.ParseCertificateKey(f.certificateKey) // checkServer has checked it
	keys, err := nodejoin.DownloadKeys(ctx, client, key)
	return network, keys, err
}

// dialEtcd connects to etcd at a URL as a client with a certificate of the authority
// among the keys. It writes them into a directory, which the connection needs.
func dialEtcd(url string, keys nodejoin.Keys, dir string) (*etcd.Members, error) {
	if err := keys.Write(dir); err != nil {
		return nil, err
	}
	opened, err := pki.Open(dir, clock.RealClock{})
	if err != nil {
		return nil, fmt.Errorf("open the cluster's keys: %w", err)
	}
	identity := pki.EtcdClient()
	if _, err := opened.Issue(identity); err != nil {
		return nil, fmt.Errorf("certificate for etcd: %w", err)
	}
	return etcd.DialMembers(etcd.Endpoints{
		URLs: []string{url}, CAFile: opened.File(pki.EtcdAuthority + ".crt"), CertFile: opened.File(identity.Name + ".crt"), KeyFile: opened.File(identity.Name + ".key"),
	}, klog.Background())
}

// leaveAsServer removes the server that this machine is from its cluster.
func (f *leaveFlags) leaveAsServer(ctx context.Context, registry host.Registry, rec host.Record, settings host.Settings) error {
	what := fmt.Sprintf("Server %s leaves the cluster: its pods are evicted, and its containers, their volumes, its copy of the objects and %s are deleted permanently.", settings.Options.NodeName, rec.DataDir)
	if err := f.agree(ctx, rec, "server "+settings.Options.NodeName, what); err != nil {
		return err
	}
	err := f.withdrawServer(ctx, rec, settings)
	if err != nil && !f.force {
		return fmt.Errorf("server %s was not removed: %w; try again, or remove it without that with --force", settings.Options.NodeName, err)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "coracle: warning: %v\n", err)
	}
	return down(ctx, registry, rec, true)
}

// withdrawServer evicts the pods of the server's nodes, deletes these, and removes the
// server's member from etcd.
func (f *leaveFlags) withdrawServer(ctx context.Context, rec host.Record, settings host.Settings) error {
	if !rec.Running() {
		return fmt.Errorf("it does not run, so that the others would count its member of etcd: start it with coracle start %s", rec.Name)
	}
	members, err := etcd.DialMembers(etcd.Endpoints{URLs: []string{"unix://" + host.EtcdSocket(settings.RunDirectory())}}, klog.Background())
	if err != nil {
		return err
	}
	defer func() { _ = members.Close() }()
	asking, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	id, others, err := members.Find(asking, lastArgument(settings.Options.EtcdArgs, "name"))
	if err != nil {
		return err
	}
	if id != 0 && others == 0 {
		return fmt.Errorf("it is the only server of the cluster: coracle down --name=%s removes it", rec.Name)
	}
	if err := withdrawNodes(asking, rec, settings); err != nil {
		return err
	}
	return members.Remove(asking, id)
}

// withdrawNodes evicts the pods of the nodes of this machine, and deletes the nodes.
func withdrawNodes(ctx context.Context, rec host.Record, settings host.Settings) error {
	client, err := adminClient(rec, answerTimeout)
	if err != nil {
		return err
	}
	options := settings.ClusterOptions()
	for _, node := range options.NodeNames() {
		fmt.Printf("Evicting the pods of node %s.\n", node)
		if err := nodejoin.Drain(ctx, client, node); err != nil {
			return err
		}
		if err := deleteNode(ctx, client, node); err != nil {
			return err
		}
	}
	return nil
}

// deleteNode deletes a node. It is no error if there is none.
func deleteNode(ctx context.Context, client kubernetes.Interface, node string) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	if err := client.CoreV1().Nodes().Delete(ctx, node, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete node %s: %w", node, err)
	}
	return nil
}

// serverTTL is how long a token for servers, and with it the sealed keys, stay by
// default.
const serverTTL = 2 * time.Hour
