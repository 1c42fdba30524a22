package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/coracle-io/coracle/cluster"
	"github.com/coracle-io/coracle/internal/bootstraptoken"
	"github.com/coracle-io/coracle/internal/flagvalue"
	"github.com/coracle-io/coracle/internal/host"
	"github.com/coracle-io/coracle/internal/nodejoin"
	"github.com/coracle-io/coracle/internal/sharedfile"
)

// discovery is how a machine finds a cluster, and gets the right to join it.
type discovery struct {
	token     string
	tokenFile string
	hashes    []string
}

func (d *discovery) bind(fs *pflag.FlagSet) {
	fs.StringVar(&d.token, "token", "", "token of coracle token create, such as abcdef.0123456789abcdef")
	fs.StringVar(&d.tokenFile, "token-file", "", "in place of --token, which other users of the machine can see meanwhile, a file with the token")
	fs.StringSliceVar(&d.hashes, "discovery-token-ca-cert-hash", nil, "hashes of the certificates of the API server's authority, such as sha256:1e06...")
}

// check checks the flags, and returns the URL of the API server at HOST:PORT.
func (d *discovery) check(endpoint string) (server string, token bootstraptoken.Token, err error) {
	text, err := secretOf("token", d.token, d.tokenFile)
	if err != nil {
		return "", token, err
	}
	token, ok := bootstraptoken.Parse(text)
	if !ok {
		return "", token, errors.New("--token: want a token such as abcdef.0123456789abcdef")
	}
	for _, hash := range d.hashes {
		if !nodejoin.IsAuthorityHash(hash) {
			return "", token, fmt.Errorf("--discovery-token-ca-cert-hash=%s: want sha256: and 64 hexadecimal digits in lower case", hash)
		}
	}
	if len(d.hashes) == 0 {
		return "", token, errors.New("--discovery-token-ca-cert-hash is missing: coracle token create prints it")
	}
	server, err = serverAt(endpoint)
	return server, token, err
}

// secretOf returns the value of a flag, or what is in a file that the flag NAME-file
// names. Other users of the machine can see the arguments of this process.
func secretOf(name, value, file string) (string, error) {
	switch {
	case file == "":
		return value, nil
	case value != "":
		return "", fmt.Errorf("--%s and --%s-file: give one of them", name, name)
	}
	const limit = 4 << 10
	content, err := sharedfile.ReadOwn(file, limit)
	if err != nil {
		return "", fmt.Errorf("--%s-file: %w", name, err)
	}
	return strings.TrimSpace(string(content)), nil
}

// ask asks the API server at HOST:PORT for the cluster, until the token has signed
// the answer, or ctx ends.
func (d *discovery) ask(ctx context.Context, endpoint string) (*nodejoin.Cluster, bootstraptoken.Token, error) {
	server, token, err := d.check(endpoint)
	if err != nil {
		return nil, token, err
	}
	c, err := nodejoin.Discover(ctx, server, token, d.hashes)
	return c, token, err
}

// joinFlags are the flags of `coracle join`.
type joinFlags struct {
	discovery
	up      *upFlags // how the node is run here
	labels  map[string]string
	taints  []string
	nodeIPs []string

	server             bool   // it becomes a server as well
	certificateKey     string // with which the keys of servers are opened
	certificateKeyFile string
}

func joinCommand() *cobra.Command {
	f := &joinFlags{up: newUpFlags()}
	cmd := &cobra.Command{
		Use:   "join HOST:PORT",
		Short: "Make this machine a node of a cluster on other machines",
		Long: `Make this machine a node of a cluster on other machines, and return when the node
is Ready. coracle token create prints the line to run here, as root.

The API server is trusted if the token has signed what it says, and the hash is that
of its authority. The node gets a certificate of its own, which is renewed, and keeps
no token. To join again is no error; coracle start starts the node after the machine
was restarted, and coracle leave removes it.

Pods reach those of other nodes by UDP port 8472, unless the nodes are in the same
subnet; in a cluster that began with --encrypt, by port 51820. The API server reaches
the node at TCP port 10250.

With --control-plane, the machine becomes a server, too: it gets the keys of the
cluster, and a member of its etcd, at TCP ports 2379 and 2380. The line for that is
what coracle token create --control-plane prints.

Other users of the machine can see the line while it runs. --token-file and
--certificate-key-file take what they must not see from files.`,
		Example: `  coracle join 192.0.2.1:6443 --token=abcdef.0123456789abcdef --discovery-token-ca-cert-hash=sha256:1e06dc046c4c9e73c192f1217fa94c6d32540192c704d93001e30f0edb6c0e66`,
		GroupID: "cluster",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cmd.Flags().Visit(func(flag *pflag.Flag) { f.up.set = append(f.up.set, flag.Name) })
			return f.run(cmd.Context(), args[0])
		},
	}
	f.bind(cmd.Flags())
	completeName(cmd)
	return cmd
}

func (f *joinFlags) bind(fs *pflag.FlagSet) {
	f.discovery.bind(fs)
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.up.bind(all)
	for _, name := range []string{"name", "data-dir", "node-name", "bundle", "registries", "registry-mirror", "network", "cni-conf-dir", "kubelet-arg", "proxy-arg", "v", "timeout"} {
		fs.AddFlag(all.Lookup(name))
	}
	fs.BoolVar(&f.server, "control-plane", false, "make this machine a server of the cluster as well, with a control plane")
	fs.StringVar(&f.certificateKey, "certificate-key", "", "with --control-plane, the key with which those of the cluster are sealed")
	fs.StringVar(&f.certificateKeyFile, "certificate-key-file", "", "in place of --certificate-key, a file with the key")
	for _, name := range serverFlags() {
		if flag := all.Lookup(name); flag != nil {
			flag.Usage = "with --control-plane, " + flag.Usage
			fs.AddFlag(flag)
		}
	}
	fs.Lookup("name").Usage = "name of the cluster on this machine"
	fs.Lookup("cni-conf-dir").Usage = "with --network=none, where the configuration of the CNI plugin is (default /etc/cni/net.d)"
	fs.Lookup("network").Usage += " (default: as on the control plane's machine)"
	fs.StringToStringVar(&f.labels, "node-labels", nil, "labels to register the node with, such as disk=fast")
	fs.StringSliceVar(&f.taints, "node-taints", nil, "taints to register the node with, such as key=value:NoSchedule")
	fs.StringSliceVar(&f.nodeIPs, "node-ip", nil, "address of this machine for the other nodes, or one of each family (default: that of the default route)")
}

// run joins the cluster with an API server at HOST:PORT.
func (f *joinFlags) run(ctx context.Context, endpoint string) error {
	if _, _, err := f.check(endpoint); err != nil {
		return err
	}
	if err := errors.Join(f.checkServer(), f.setArguments()); err != nil {
		return err
	}
	registry := host.NewRegistry(host.Root())
	if f.server {
		return f.joinAsServer(ctx, registry, endpoint)
	}
	rec, err := registry.Find(f.up.settings.Options.Name)
	switch {
	case err == nil && rec.Node.Joined == nil:
		return fmt.Errorf("cluster %s is on this machine, and is no node of another one: choose another --name", rec.Name)
	case err == nil:
		_, err = identityOf(rec).Config()
		if err == nil { // it has joined
			f.up.existing = true
			return up(ctx, f.up)
		}
		if rec.Served {
			return err
		} // a kill may have left half of the file
	case !errors.Is(err, host.ErrNoCluster):
		return err
	}
	if err := f.find(ctx, registry, endpoint); err != nil {
		return err
	}
	return up(ctx, f.up)
}

// setArguments makes the flags of the node arguments of its kubelet.
func (f *joinFlags) setArguments() error {
	o := &f.up.settings.Options
	given := len(o.KubeletArgs)
	if len(f.labels) > 0 {
		o.KubeletArgs = append(o.KubeletArgs, "node-labels="+labels.Set(f.labels).String())
	}
	if len(f.taints) > 0 {
		o.KubeletArgs = append(o.KubeletArgs, "register-with-taints="+strings.Join(f.taints, ","))
	}
	for _, text := range f.nodeIPs {
		if net.ParseIP(text) == nil {
			return fmt.Errorf("--node-ip=%s: want an IP address of this machine", text)
		}
	}
	if len(f.nodeIPs) > 0 {
		o.AdvertiseAddress = net.ParseIP(f.nodeIPs[0])
		o.KubeletArgs = append(o.KubeletArgs, "node-ip="+strings.Join(f.nodeIPs, ","))
	}
	if len(o.KubeletArgs) > given {
		f.up.set = append(f.up.set, "kubelet-arg")
	}
	return nil
}

// find finds the cluster, and sets how this machine is a node of it. up requests
// the node's certificate once it has a place for it.
func (f *joinFlags) find(ctx context.Context, registry host.Registry, endpoint string) error {
	fmt.Printf("Asking %s for the cluster.\n", endpoint)
	asking, cancel := context.WithTimeout(ctx, f.up.timeout)
	defer cancel()
	found, token, err := f.ask(asking, endpoint)
	if err != nil {
		return err
	}
	s := &f.up.settings
	node, err := f.nodeName()
	if err != nil {
		return err
	}
	client, err := clientWith(found, token)
	if err != nil {
		return err
	}
	network, err := networkOf(asking, client, node)
	if err != nil {
		return err
	}
	dir := s.Options.DataDir
	if dir == "" {
		dir = registry.DataDir(s.Options.Name)
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return fmt.Errorf("--data-dir=%s: %w", s.Options.DataDir, err)
	}
	s.Nodes, s.Kubeconfig = 1, nodejoin.Files(filepath.Join(dir, identityName)).Kubeconfig()
	s.Options.ServiceCIDR, s.Options.ClusterCIDR = network.ServiceCIDR, network.ClusterCIDR
	joined := cluster.JoinedNode{Server: found.Server, NodeMaskSizeIPv4: network.NodeMaskSizeIPv4, NodeMaskSizeIPv6: network.NodeMaskSizeIPv6}
	s.Options.Node.Joined = &joined
	setNodes(&s.Options, network)
	f.up.join = func(ctx context.Context, rec host.Record) error {
		// The settings are those of a former join if that was interrupted.
		if !isLeftOf(rec, joined, network) {
			return fmt.Errorf("%s has what is left of another join, which was interrupted: remove it with coracle leave %s, and join again", rec.DataDir, rec.Name)
		}
		node, err := nodeNameOf(rec)
		if err != nil {
			return err
		}
		fmt.Printf("Requesting a certificate of %s for node %s.\n", found.Server, node)
		ctx, cancel := context.WithTimeout(ctx, f.up.timeout)
		defer cancel()
		return identityOf(rec).Request(ctx, found, token, node)
	}
	return nil
}

// isLeftOf reports whether a record is that of a join to a cluster with this network. A
// node of an encrypted one has a port for that.
func isLeftOf(rec host.Record, joined cluster.JoinedNode, network nodejoin.Network) bool {
	return rec.Node.Joined != nil && *rec.Node.Joined == joined && rec.ServiceCIDR == network.ServiceCIDR && rec.ClusterCIDR == network.ClusterCIDR &&
		(rec.Ports.WireGuard != 0) == (network.Encryption != "")
}

// setNodes sets what a machine must know of the nodes of others.
func setNodes(o *cluster.Options, network nodejoin.Network) {
	o.Encrypt = network.Encryption != ""
	o.Node.Network = cmp.Or(o.Node.Network, network.Pods)
	if network.NodeCIDR != "" {
		o.Node.Behind = &cluster.NodesBehind{CIDR: network.NodeCIDR, Node: network.Gateway}
	}
}

// nodeName returns the name of the node that this machine becomes.
func (f *joinFlags) nodeName() (string, error) {
	if node := nodeName(f.up.settings.Options); node != "" {
		return node, nil
	}
	name, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("name of this host (give one with --node-name): %w", err)
	}
	return strings.ToLower(name), nil
}

// identityName is the directory in a data directory that has the identity of the
// node.
const identityName = "node"

// identityOf returns the identity of the node of a cluster on this machine.
func identityOf(rec host.Record) nodejoin.Files {
	return nodejoin.Files(filepath.Join(rec.DataDir, identityName))
}

// nodeName returns the name of the node with these options, "" for that of the host.
func nodeName(o cluster.Options) string {
	return cmp.Or(flagvalue.Last(o.KubeletArgs, "hostname-override"), o.NodeName)
}

// nodeNameOf returns the name of the node of a cluster on this machine.
func nodeNameOf(rec host.Record) (string, error) {
	settings, err := host.ReadSettings(rec.DataDir)
	return nodeName(settings.Options), err
}

// checkIdentity returns an error if the node of a cluster that is elsewhere has no
// identity.
func checkIdentity(rec host.Record) error {
	_, err := identityOf(rec).Config()
	if err != nil && !rec.Served {
		return fmt.Errorf("the node has no certificate, because coracle join was interrupted (%w): run coracle join again, or remove it with coracle leave %s", err, rec.Name)
	}
	return err
}

// clientWith returns a client of a cluster that has a token.
func clientWith(c *nodejoin.Cluster, token bootstraptoken.Token) (kubernetes.Interface, error) {
	content, err := c.Kubeconfig(token)
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(content)
	if err != nil {
		return nil, err
	}
	config.Timeout = 10 * time.Second
	return kubernetes.NewForConfig(config)
}

// networkOf asks the cluster for its network. It returns an error if a node of the given
// name cannot join.
func networkOf(ctx context.Context, client kubernetes.Interface, node string) (nodejoin.Network, error) {
	_, err := client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
	switch {
	case err == nil:
		return nodejoin.Network{}, fmt.Errorf("the cluster has a node %s already: choose another --node-name or, if that node is gone, delete it where the administrator is, with coracle kubectl delete node %s", node, node)
	case !apierrors.IsNotFound(err):
		return nodejoin.Network{}, fmt.Errorf("ask whether there is a node %s: %w", node, err)
	}
	return nodejoin.ReadNetwork(ctx, client)
}
