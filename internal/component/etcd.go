package component

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/pflag"

	"github.com/coracle-io/coracle/internal/component/base"
	"github.com/coracle-io/coracle/internal/flagvalue"
	"github.com/coracle-io/coracle/internal/pki"
	"github.com/coracle-io/coracle/internal/store/etcd"
)

// Etcd is the embedded etcd: a single member, or one member of a Raft cluster of
// several processes.
type Etcd struct {
	etcd.Config
}

// NewEtcd returns an etcd of a single member below a data directory.
func NewEtcd(dataDir string) *Etcd {
	return &Etcd{Config: etcd.Config{Dir: filepath.Join(dataDir, "etcd")}}
}

// AddFlags binds the flags, which are etcd's own.
func (e *Etcd) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&e.Name, "name", e.Name, "name of this member")
	fs.StringVar(&e.PeerURL, "initial-advertise-peer-urls", e.PeerURL, "URL where the other members reach this one; empty: a single member")
	fs.StringVar(&e.InitialCluster, "initial-cluster", e.InitialCluster, "all members, such as name=url,name=url")
	fs.Var(initialState{&e.Existing}, "initial-cluster-state", "new makes the cluster of --initial-cluster, existing joins one that runs")
	fs.StringVar(&e.PeerTLS.CA, "peer-trusted-ca-file", e.PeerTLS.CA, "authority of the members' certificates (default: the cluster's own, etcd-ca)")
	fs.StringVar(&e.PeerTLS.Cert, "peer-cert-file", e.PeerTLS.Cert, "certificate of this member for the others")
	fs.StringVar(&e.PeerTLS.Key, "peer-key-file", e.PeerTLS.Key, "key of --peer-cert-file")
	fs.StringVar(&e.ClientURL, "listen-client-urls", e.ClientURL, "URL where clients beside the unix socket reach this member, with TLS")
	fs.StringVar(&e.ClientTLS.CA, "trusted-ca-file", e.ClientTLS.CA, "authority of the clients' certificates (default: the cluster's own, etcd-ca)")
	fs.StringVar(&e.ClientTLS.Cert, "cert-file", e.ClientTLS.Cert, "certificate of this member for clients")
	fs.StringVar(&e.ClientTLS.Key, "key-file", e.ClientTLS.Key, "key of --cert-file")
	fs.Int64Var(&e.QuotaBytes, "quota-backend-bytes", e.QuotaBytes, "how large the database may become; 0 is 8 GiB")
	flagvalue.Is(fs, flagvalue.File, "peer-trusted-ca-file", "peer-cert-file", "peer-key-file", "trusted-ca-file", "cert-file", "key-file")
}

// initialState is the value of --initial-cluster-state.
type initialState struct{ existing *bool }

// Set implements pflag.Value.
func (s initialState) Set(text string) error {
	if text != "new" && text != "existing" {
		return errors.New("want new or existing")
	}
	*s.existing = text == "existing"
	return nil
}

// String implements pflag.Value.
func (s initialState) String() string {
	if s.existing != nil && *s.existing {
		return "existing"
	}
	return "new"
}

// Type implements pflag.Value.
func (initialState) Type() string { return "string" }

// Validate returns all errors in the flags.
func (e *Etcd) Validate() error {
	var errs []error
	if (e.PeerURL == "") != (e.InitialCluster == "") {
		errs = append(errs, base.BadArgument("etcd", "", "initial-advertise-peer-urls and initial-cluster go together: give both for a member of several, neither for an etcd of its own"))
	} else if e.PeerURL != "" && !e.listed() {
		errs = append(errs, base.BadArgument("etcd", "initial-cluster="+e.InitialCluster, "this member is missing, add %s=%s (name=NAME names it)", e.Name, e.PeerURL))
	}
	for _, given := range e.urls() {
		if err := checkURL(given.flag, given.text); err != nil {
			errs = append(errs, err)
			break // the others are of the same kind
		}
	}
	if !memberName.MatchString(e.name()) {
		errs = append(errs, base.BadArgument("etcd", "name="+e.Name, "want letters, digits, points and dashes"))
	}
	for _, given := range []struct {
		flags string
		files etcd.TLSFiles
	}{
		{"peer-trusted-ca-file, peer-cert-file and peer-key-file", e.PeerTLS},
		{"trusted-ca-file, cert-file and key-file", e.ClientTLS},
	} {
		if files := given.files; files != (etcd.TLSFiles{}) && (files.CA == "" || files.Cert == "" || files.Key == "") {
			errs = append(errs, base.BadArgument("etcd", "", "%s go together: give all three, or none for the cluster's own authority", given.flags))
		}
	}
	return errors.Join(errs...)
}

// memberName matches valid names of members, which name their files.
var memberName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.-]*$`)

func (e *Etcd) name() string {
	if e.Name == "" {
		return etcd.DefaultName
	}
	return e.Name
}

type etcdURL struct{ flag, text string }

// urls returns all given URLs, including the URLs of other members.
func (e *Etcd) urls() []etcdURL {
	var all []etcdURL
	if e.ClientURL != "" {
		all = append(all, etcdURL{"listen-client-urls", e.ClientURL})
	}
	if e.PeerURL != "" {
		all = append(all, etcdURL{"initial-advertise-peer-urls", e.PeerURL})
	}
	if e.InitialCluster == "" {
		return all
	}
	for member := range strings.SplitSeq(e.InitialCluster, ",") {
		_, u, _ := strings.Cut(member, "=")
		all = append(all, etcdURL{"initial-cluster", u})
	}
	return all
}

// checkURL refuses URLs without TLS, because a client of etcd can read all
// secrets and change every object.
func checkURL(flag, text string) error {
	u, err := url.Parse(text)
	if err == nil && u.Scheme == "http" && u.Host != "" {
		return base.BadArgument("etcd", flag, "%s would let everybody who reaches it read and write everything: write https://%s, for which the cluster makes certificates of its own authority, etcd-ca; on this machine use the unix socket (coracle etcdctl)", text, u.Host)
	}
	if err != nil || u.Host == "" || u.Scheme != "https" {
		return base.BadArgument("etcd", flag+"="+text, "want a URL such as https://10.0.0.1:2380")
	}
	return nil
}

// UseKeys configures certificates of the cluster's own authority, for serving and
// for verifying clients, where etcd listens on TCP and has no others.
func (e *Etcd) UseKeys(keys *pki.Directory) error {
	if e.PeerURL != "" && e.PeerTLS == (etcd.TLSFiles{}) {
		names, ips := hostOf(e.PeerURL)
		files, err := issueEtcd(keys, pki.EtcdPeer(e.name(), names, ips))
		if err != nil {
			return err
		}
		e.PeerTLS, e.PeersAnywhere = files, true
	}
	if e.ClientURL != "" && e.ClientTLS == (etcd.TLSFiles{}) {
		names, ips := hostOf(e.ClientURL)
		files, err := issueEtcd(keys, pki.EtcdServer(e.name(), names, ips))
		if err != nil {
			return err
		}
		if _, err := keys.Issue(pki.EtcdClient()); err != nil {
			return err
		}
		e.ClientTLS = files
	}
	return nil
}

func issueEtcd(keys *pki.Directory, p pki.Profile) (etcd.TLSFiles, error) {
	if _, err := keys.Issue(p); err != nil {
		return etcd.TLSFiles{}, fmt.Errorf("certificate for etcd: %w", err)
	}
	return etcd.TLSFiles{
		CA: keys.File(pki.EtcdAuthority + ".crt"), Cert: keys.File(p.Name + ".crt"), Key: keys.File(p.Name + ".key"),
	}, nil
}

// hostOf returns the name or address of a URL.
func hostOf(text string) (names []string, ips []net.IP) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, nil
	}
	if ip := net.ParseIP(u.Hostname()); ip != nil {
		return nil, []net.IP{ip}
	}
	return []string{u.Hostname()}, nil
}

func (e *Etcd) listed() bool {
	for member := range strings.SplitSeq(e.InitialCluster, ",") {
		if member == e.Name+"="+e.PeerURL {
			return true
		}
	}
	return false
}

// Shared reports whether other processes have the same data.
func (e *Etcd) Shared() bool { return e.PeerURL != "" }
