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
	"strings"
	"time"

	"k8s.io/klog/v2"

	"github.com/coracle-io/coracle/cluster"
	"github.com/coracle-io/coracle/internal/bootstraptoken"
	"github.com/coracle-io/coracle/internal/component/apiserver"
	"github.com/coracle-io/coracle/internal/flagvalue"
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
	if text := flagvalue.Last(o.APIServerArgs, "advertise-address"); text != "" {
		api.Serving.AdvertiseAddress = net.ParseIP(text)
	}
	return api.Advertised()
}

// isMember reports whether a cluster on this machine has a member of an etcd that other
// servers can join.
func isMember(o cluster.Options) bool {
	return flagvalue.Last(o.EtcdArgs, "initial-advertise-peer-urls") != "" && flagvalue.Last(o.EtcdArgs, "listen-client-urls") != ""
}

// setMember sets the place among the members of etcd of a server that joins, and of one
// that lets others join.
func (f *upFlags) setMember(s *host.Settings, isNew bool) error {
	if f.keys != nil { // the others may have changed since a join that was interrupted
		s.Options.EtcdArgs = f.settings.Options.EtcdArgs
	}
	if !f.severalServers {
		return nil
	}
	return listenForServers(s, isNew)
}

// listenForServers makes a new cluster one that other servers can join. One that is there
// gets an address of this machine. It returns an error for one that is there and is none.
func listenForServers(s *host.Settings, isNew bool) error {
	o := &s.Options
	switch {
	case isMember(*o) && isNew:
		return nil
	case isMember(*o):
		return findMember(o)
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
	return cmp.Or(flagvalue.Last(o.APIServerArgs, "cert-dir"), filepath.Join(rec.DataDir, "pki"))
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
		return "", fmt.Errorf("the etcd of cluster %s does not listen for other servers: they can join one that was made with --several-servers", name)
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
	return []string{"nodes", "node-cidr", "kubeconfig", "bind-address", "secure-port", "apiserver-arg", "controller-manager-arg", "scheduler-arg", "ingress", "ingress-http-port", "ingress-https-port", "certificate-key", "certificate-key-file"}
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
	var err error
	if f.certificateKey, err = secretOf("certificate-key", f.certificateKey, f.certificateKeyFile); err != nil {
		return err
	}
	if _, ok := nodejoin.ParseCertificateKey(f.certificateKey); !ok {
		return errors.New("--certificate-key: want 64 hexadecimal digits: coracle token create --control-plane prints them")
	}
	return nil
}

// joinAsServer makes this machine a server of the cluster with an API server at
// HOST:PORT.
func (f *joinFlags) joinAsServer(ctx context.Context, registry host.Registry, endpoint string) error {
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
		if rec.Node.Joined != nil || flagvalue.Last(settings.Options.EtcdArgs, "initial-cluster-state") != "existing" {
			return fmt.Errorf("cluster %s is on this machine, and is no server of another one: choose another --name", name)
		}
		if rec.Served || settings.HoldsMember() { // it has joined
			f.up.existing = true
			return up(ctx, f.up)
		}
		if !slices.Contains(f.up.set, "node-name") { // the join was interrupted
			f.up.settings.Options.NodeName = settings.Options.NodeName
		}
	}
	members, id, err := f.addMember(ctx, registry, endpoint)
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
// it. The caller must close the members.
func (f *joinFlags) addMember(ctx context.Context, registry host.Registry, endpoint string) (members *etcd.Members, id uint64, err error) {
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
	if members, err = dialEtcd(strings.Split(network.Etcd, ","), keys); err != nil {
		return nil, 0, err
	}
	fmt.Printf("Adding a member at %s to etcd.\n", peerURL)
	id, initial, err := members.Add(ctx, s.Options.NodeName, peerURL)
	if err != nil {
		return nil, 0, errors.Join(err, members.Close())
	}
	s.Options.EtcdArgs = append(arguments, "initial-cluster="+initial, "initial-cluster-state=existing")
	s.Options.ServiceCIDR, s.Options.ClusterCIDR, s.Options.NodePorts = network.ServiceCIDR, network.ClusterCIDR, network.NodePorts
	setNodes(&s.Options, network)
	f.up.keys = func(rec host.Record) error { return keys.Write(keysDirOf(rec, s.Options)) }
	return members, id, nil
}

// read returns the network of a cluster and the keys of its servers.
func (f *joinFlags) read(ctx context.Context, c *nodejoin.Cluster, token bootstraptoken.Token, node string) (nodejoin.Network, nodejoin.Keys, error) {
	client, err := clientWith(c, token)
	if err != nil {
		return nodejoin.Network{}, nil, err
	}
	network, err := networkOf(ctx, client, node)
	if err != nil {
		return network, nil, err
	}
	if network.Etcd == "" {
		return network, nil, errors.New("the etcd of the cluster does not listen for other servers: they can join one that was made with --several-servers")
	}
	key, _ := nodejoin.ParseCertificateKey(f.certificateKey) // checkServer has checked it
	keys, err := nodejoin.DownloadKeys(ctx, client, key)
	return network, keys, err
}

// dialEtcd connects to the etcd of other servers at these URLs, as a client with a
// certificate of the authority that is among the keys.
func dialEtcd(urls []string, keys nodejoin.Keys) (*etcd.Members, error) {
	config, err := pki.ClientConfig(keys[pki.EtcdAuthority+".crt"], keys[pki.EtcdAuthority+".key"], pki.EtcdClient(), time.Now())
	if err != nil {
		return nil, fmt.Errorf("certificate for etcd: %w", err)
	}
	return etcd.DialMembers(etcd.Endpoints{URLs: urls, TLS: config}, klog.Background())
}

// serverTTL is how long a token for servers, and with it the sealed keys, stay by
// default.
const serverTTL = 2 * time.Hour
