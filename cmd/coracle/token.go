package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/coracle-io/coracle/internal/bootstraptoken"
	"github.com/coracle-io/coracle/internal/host"
	"github.com/coracle-io/coracle/internal/nodejoin"
	"github.com/coracle-io/coracle/internal/printable"
)

// tokenCommand has commands for bootstrap tokens, as kubeadm token has them.
func tokenCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Create, list and delete the tokens with which nodes join",
		Long: `Create, list and delete bootstrap tokens, with which other machines join a cluster:
by coracle join, or by the kubelet alone, also upstream's.

The flags for the cluster are those of kubectl.`,
		Example: `  coracle token create
  coracle token list`,
		GroupID: "cluster",
		Args:    wantSubcommand("create", "list", "delete", "discover"),
		Run:     func(*cobra.Command, []string) {},
	}
	client := genericclioptions.NewConfigFlags(true)
	client.Namespace = nil   // tokens are in kube-system
	client.BearerToken = nil // --token would be mistaken for the one to create
	client.AddFlags(cmd.PersistentFlags())
	cmd.AddCommand(createTokenCommand(client), listTokensCommand(client), deleteTokenCommand(client), discoverCommand())
	return cmd
}

// newToken has the flags of coracle token create.
type newToken struct {
	bootstraptoken.BootstrapToken
	ttl        time.Duration
	endpoint   string
	kubeconfig bool
	discover   bool
	server     bool
	name       string // of the cluster on this machine whose keys a server gets
	output     string
}

func createTokenCommand(client *genericclioptions.ConfigFlags) *cobra.Command {
	n := &newToken{}
	cmd := &cobra.Command{
		Use:   "create [TOKEN]",
		Short: "Create a token, and prepare the cluster for nodes that join with it",
		Long: `Create a token, and print the line that makes another machine a node, or the token
alone if it is not for that.

The cluster is prepared as kubeadm does it: the ConfigMap kube-public/cluster-info
names the API server and its authority to nodes. Bindings kubeadm:... give nodes
that join the right to request their certificates, which are approved. Bindings
coracle:... let nodes read what their proxy, routes and network policies need. What
is there already stays.

With --control-plane, the line makes another machine a server, with a control plane.
The keys of the cluster, of which this machine must be a server, are stored in the
cluster for it until the token expires, sealed with a key that is in the line alone.`,
		Example: `  coracle token create --ttl=2h --description='for the new rack'
  coracle token create --print-kubeconfig > bootstrap-kubelet.conf`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !cmd.Flags().Changed("groups") && !slices.Contains(n.Usages, bootstraptoken.Authentication) {
				n.Groups = nil // nobody authenticates with it
			}
			if n.server && !cmd.Flags().Changed("ttl") {
				n.ttl = serverTTL
			}
			if err := n.complete(args, time.Now()); err != nil {
				return err
			}
			config, err := client.ToRESTConfig()
			if err != nil {
				return err
			}
			return n.create(cmd.Context(), config, cmd.OutOrStdout())
		},
	}
	fs := cmd.Flags()
	fs.DurationVar(&n.ttl, "ttl", 24*time.Hour, "how long the token is valid, such as 2h; 0 is forever")
	fs.StringSliceVar(&n.Usages, "usages", []string{bootstraptoken.Signing, bootstraptoken.Authentication}, "uses of the token: signing of cluster-info, and authentication")
	fs.StringSliceVar(&n.Groups, "groups", []string{bootstraptoken.DefaultGroup}, "groups of those who authenticate with the token, besides system:bootstrappers")
	fs.StringVar(&n.Description, "description", "", "text about the token, for people")
	fs.StringVar(&n.endpoint, "control-plane-endpoint", "", "HOST or HOST:PORT at which nodes reach the API server (default: as before or, at first, an address of the Service kubernetes)")
	fs.BoolVar(&n.kubeconfig, "print-kubeconfig", false, "print a file for --bootstrap-kubeconfig of a kubelet, with the token in it")
	fs.BoolVar(&n.discover, "print-discover-command", false, "print the command that gets that file on the machine of a node")
	fs.BoolVar(&n.server, "control-plane", false, "print the line that makes another machine a server, and store the keys for it (--ttl is 2h by default)")
	fs.StringVar(&n.name, "name", host.DefaultName, "with --control-plane, name of the cluster on this machine")
	addOutputFlag(fs, &n.output)
	return cmd
}

// complete reads the arguments and checks the flags.
func (n *newToken) complete(args []string, now time.Time) error {
	n.Token = bootstraptoken.New()
	if len(args) > 0 {
		var ok bool
		if n.Token, ok = bootstraptoken.Parse(args[0]); !ok {
			return fmt.Errorf("%s: want a token such as abcdef.0123456789abcdef, of 6 and 16 lower-case letters and digits", args[0])
		}
	}
	switch {
	case n.ttl < 0:
		return fmt.Errorf("--ttl=%s: want 0 or more", n.ttl)
	case n.ttl > 0:
		n.Expires = now.Add(n.ttl)
	}
	if n.kubeconfig && n.discover || n.output != "" && (n.kubeconfig || n.discover) {
		return errors.New("--print-kubeconfig, --print-discover-command and --output: give one of them")
	}
	if n.server && (n.ttl == 0 || n.kubeconfig || n.discover || !canJoin(n.Usages, n.Groups)) {
		return errors.New("--control-plane: want a token that expires, with the default --usages and --groups, and no other line to print")
	}
	return errors.Join(checkOutput(n.output), n.Validate())
}

// canJoin reports whether nodes can join with a token of these usages and groups.
func canJoin(usages, groups []string) bool {
	return slices.Contains(usages, bootstraptoken.Signing) && slices.Contains(usages, bootstraptoken.Authentication) && slices.Contains(groups, bootstraptoken.DefaultGroup)
}

// create creates the token and writes what the flags ask for.
func (n *newToken) create(ctx context.Context, config *rest.Config, out io.Writer) error {
	cluster := &nodejoin.Cluster{}
	if n.endpoint != "" {
		var err error
		if cluster.Server, err = serverAt(n.endpoint); err != nil {
			return fmt.Errorf("--control-plane-endpoint: %w", err)
		}
	}
	if err := rest.LoadTLSFiles(config); err != nil {
		return err
	}
	if cluster.Authority = config.CAData; len(cluster.Authority) == 0 {
		return errors.New("the kubeconfig has no authority of the API server, and nodes could not verify it: add certificate-authority to its cluster")
	}
	hashes, err := cluster.AuthorityHashes()
	if err != nil {
		return err
	}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	keysDir := ""
	if n.server {
		if keysDir, err = serverKeys(n.name, cluster.Authority); err != nil {
			return err
		}
	}
	secrets := kube.CoreV1().Secrets(metav1.NamespaceSystem)
	token, err := secrets.Create(ctx, n.ToSecret(), metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("a token with the ID %s is there already", n.Token.ID)
	}
	if err != nil {
		return err
	}
	certificateKey := ""
	err = cluster.Prepare(ctx, kube)
	if err == nil && n.server {
		key := nodejoin.NewCertificateKey()
		certificateKey, err = key.String(), nodejoin.UploadKeys(ctx, kube, keysDir, key, token)
	}
	if err != nil {
		return errors.Join(err, secrets.Delete(ctx, token.Name, metav1.DeleteOptions{}))
	}
	switch {
	case n.kubeconfig:
		return writeKubeconfig(out, cluster, n.Token)
	case n.discover:
		_, err := fmt.Fprintln(out, lineOf("coracle token discover", cluster.Server, n.Token.String(), hashes))
		return err
	}
	return write(out, n.output, createdToken{reportOf(&n.BootstrapToken), cluster.Server, hashes, certificateKey})
}

func writeKubeconfig(out io.Writer, cluster *nodejoin.Cluster, token bootstraptoken.Token) error {
	content, err := cluster.Kubeconfig(token)
	if err != nil {
		return err
	}
	_, err = out.Write(content)
	return err
}

func discoverCommand() *cobra.Command {
	d := &discovery{}
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "discover HOST:PORT",
		Short: "Print the file with which a kubelet joins, on the machine of a node",
		Long: `Print a file for --bootstrap-kubeconfig of a kubelet, on the machine of a node.
coracle join does more: it runs the node.

The API server is asked for the ConfigMap kube-public/cluster-info. What it says is
trusted if the token has signed it and the hash is that of its authority. kubeadm
token create --print-join-command prints the same address, token and hash.`,
		Example: `  coracle token discover 192.0.2.1:6443 --token=abcdef.0123456789abcdef \
    --discovery-token-ca-cert-hash=sha256:1e06dc046c4c9e73c192f1217fa94c6d32540192c704d93001e30f0edb6c0e66 > bootstrap-kubelet.conf`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			cluster, token, err := d.ask(ctx, args[0])
			if err != nil {
				return err
			}
			return writeKubeconfig(cmd.OutOrStdout(), cluster, token)
		},
	}
	d.bind(cmd.Flags())
	cmd.Flags().DurationVar(&timeout, "timeout", 5*time.Minute, "how long to ask for an answer that the token has signed")
	return cmd
}

// serverAt returns the URL of an API server at HOST or HOST:PORT.
func serverAt(endpoint string) (string, error) {
	host, port, err := net.SplitHostPort(endpoint)
	if err != nil {
		host, port = strings.Trim(endpoint, "[]"), "6443"
	}
	server := "https://" + net.JoinHostPort(host, port)
	if u, err := url.Parse(server); host == "" || err != nil || u.Hostname() != host || u.Port() == "" {
		return "", fmt.Errorf("%s: want a host and a port, such as api.example.com:6443", endpoint)
	}
	return server, nil
}

// tokenReport is what --output shows of a token.
type tokenReport struct {
	Token       string       `json:"token"`
	Description string       `json:"description,omitzero"`
	Expires     *metav1.Time `json:"expires,omitzero"`
	Usages      []string     `json:"usages"`
	Groups      []string     `json:"groups,omitzero"`
}

func reportOf(b *bootstraptoken.BootstrapToken) tokenReport {
	r := tokenReport{Token: b.Token.String(), Description: b.Description, Usages: b.Usages, Groups: b.Groups}
	if !b.Expires.IsZero() {
		r.Expires = &metav1.Time{Time: b.Expires}
	}
	return r
}

// createdToken is the output of token create.
type createdToken struct {
	tokenReport
	Server         string   `json:"server"`
	CACertHashes   []string `json:"caCertHashes"`
	CertificateKey string   `json:"certificateKey,omitzero"` // for servers
}

// WriteText writes the command line of coracle join, or the token if nodes cannot
// join with it.
func (c createdToken) WriteText(out io.Writer) {
	text := c.Token
	if canJoin(c.Usages, c.Groups) {
		text = lineOf("coracle join", c.Server, c.Token, c.CACertHashes)
	}
	if c.CertificateKey != "" {
		text += " --control-plane --certificate-key=" + c.CertificateKey
	}
	_, _ = fmt.Fprintln(out, text)
}

// lineOf returns the command line with which a machine finds a cluster.
func lineOf(command, server, token string, hashes []string) string {
	return fmt.Sprintf("%s %s --token=%s --discovery-token-ca-cert-hash=%s", command, strings.TrimPrefix(server, "https://"), token, strings.Join(hashes, ","))
}

func listTokensCommand(client *genericclioptions.ConfigFlags) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the tokens of a cluster",
		Example: `  coracle token list
  coracle token list -o json`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			kube, err := clientOf(client)
			if err != nil {
				return err
			}
			list, err := kube.CoreV1().Secrets(metav1.NamespaceSystem).List(cmd.Context(), metav1.ListOptions{
				FieldSelector: fields.OneTermEqualSelector("type", string(v1.SecretTypeBootstrapToken)).String(),
			})
			if err != nil {
				return err
			}
			return write(cmd.OutOrStdout(), output, tokensIn(list.Items, func(err error) {
				_, _ = fmt.Fprintln(cmd.ErrOrStderr(), "coracle:", printable.Line(err.Error()))
			}))
		},
	}
	addOutputFlag(cmd.Flags(), &output)
	return cmd
}

func clientOf(flags *genericclioptions.ConfigFlags) (kubernetes.Interface, error) {
	config, err := flags.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(config)
}

// tokenList is the output of token list.
type tokenList []tokenReport

// tokensIn reads the tokens in secrets, in the order of their IDs. Those that are
// none are reported.
func tokensIn(secrets []v1.Secret, report func(error)) tokenList {
	list := tokenList{}
	for i := range secrets {
		b, err := bootstraptoken.FromSecret(&secrets[i])
		if err != nil {
			report(err)
			continue
		}
		list = append(list, reportOf(b))
	}
	slices.SortFunc(list, func(a, b tokenReport) int { return strings.Compare(a.Token, b.Token) })
	return list
}

// WriteText writes the columns of kubeadm token list.
func (l tokenList) WriteText(out io.Writer) {
	if len(l) == 0 {
		_, _ = fmt.Fprintln(out, "There is no token.")
		return
	}
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	defer func() { _ = w.Flush() }()
	_, _ = fmt.Fprintln(w, "TOKEN\tTTL\tEXPIRES\tUSAGES\tDESCRIPTION\tEXTRA GROUPS")
	for _, t := range l {
		left, expires := "<forever>", "<never>"
		if t.Expires != nil {
			left, expires = duration.ShortHumanDuration(time.Until(t.Expires.Time)), t.Expires.UTC().Format(time.RFC3339)
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", t.Token, left, expires, orNone(strings.Join(t.Usages, ",")), orNone(t.Description), orNone(strings.Join(t.Groups, ",")))
	}
}

func orNone(text string) string {
	if text == "" {
		return "<none>"
	}
	return printable.Line(text)
}

func deleteTokenCommand(client *genericclioptions.ConfigFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "delete TOKEN...",
		Short: "Delete tokens, by their IDs or as a whole",
		Long: `Delete tokens, by their IDs (the part before the dot) or as a whole. Nodes that
have joined stay.`,
		Example: `  coracle token delete abcdef`,
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ids := make([]string, len(args))
			for i, text := range args {
				var ok bool
				if ids[i], ok = bootstraptoken.ParseID(text); !ok {
					return fmt.Errorf("%s: want the ID of a token, such as abcdef, or a token", text)
				}
			}
			kube, err := clientOf(client)
			if err != nil {
				return err
			}
			var all []error
			for _, id := range ids {
				err := kube.CoreV1().Secrets(metav1.NamespaceSystem).Delete(cmd.Context(), bootstraptoken.SecretPrefix+id, metav1.DeleteOptions{})
				switch {
				case apierrors.IsNotFound(err):
					all = append(all, fmt.Errorf("there is no token with the ID %s", id))
				case err != nil:
					all = append(all, err)
				default:
					_, _ = fmt.Fprintf(cmd.OutOrStdout(), "bootstrap token %q deleted\n", id)
				}
			}
			return errors.Join(all...)
		},
	}
}
