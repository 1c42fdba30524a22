package component

import (
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"github.com/coracle-io/coracle/internal/store/etcd"
)

// Etcd is the etcd inside a cluster's process: alone, or one member of a Raft
// cluster of several processes.
type Etcd struct {
	etcd.Config
	initialState string
}

// NewEtcd returns an etcd of a single member below a data directory.
func NewEtcd(dataDir string) *Etcd {
	return &Etcd{Config: etcd.Config{Dir: filepath.Join(dataDir, "etcd")}, initialState: "new"}
}

// AddFlags binds the flags, which are etcd's own.
func (e *Etcd) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&e.Name, "name", e.Name, "name of this member")
	fs.StringVar(&e.PeerURL, "initial-advertise-peer-urls", e.PeerURL, "URL where the other members reach this one; none is an etcd of its own")
	fs.StringVar(&e.InitialCluster, "initial-cluster", e.InitialCluster, "all members, as name=url,name=url")
	fs.StringVar(&e.initialState, "initial-cluster-state", e.initialState, "new makes the cluster of --initial-cluster, existing joins one that runs")
	fs.StringVar(&e.PeerTLS.CA, "peer-trusted-ca-file", e.PeerTLS.CA, "authority of the members' certificates")
	fs.StringVar(&e.PeerTLS.Cert, "peer-cert-file", e.PeerTLS.Cert, "certificate of this member for the others")
	fs.StringVar(&e.PeerTLS.Key, "peer-key-file", e.PeerTLS.Key, "key of --peer-cert-file")
	fs.StringVar(&e.ClientURL, "listen-client-urls", e.ClientURL, "URL for etcdctl")
	fs.StringVar(&e.ClientTLS.CA, "trusted-ca-file", e.ClientTLS.CA, "authority of etcdctl's certificate")
	fs.StringVar(&e.ClientTLS.Cert, "cert-file", e.ClientTLS.Cert, "certificate for etcdctl")
	fs.StringVar(&e.ClientTLS.Key, "key-file", e.ClientTLS.Key, "key of --cert-file")
	fs.Int64Var(&e.QuotaBytes, "quota-backend-bytes", e.QuotaBytes, "how large the database may become; 0 is 8 GiB")
}

// Validate reports everything that is wrong with the flags, and settles what
// follows from them.
func (e *Etcd) Validate() error {
	var errs []error
	switch e.initialState {
	case "new", "existing":
		e.Existing = e.initialState == "existing"
	default:
		errs = append(errs, fmt.Errorf("--etcd-arg=initial-cluster-state=%s: want new or existing", e.initialState))
	}
	if (e.PeerURL == "") != (e.InitialCluster == "") {
		errs = append(errs, errors.New("--etcd-arg: initial-advertise-peer-urls and initial-cluster go together: give both for a member of several, neither for an etcd of its own"))
	} else if e.PeerURL != "" && !e.listed() {
		errs = append(errs, fmt.Errorf("--etcd-arg=initial-cluster=%s: this member is missing, add %s=%s (--etcd-arg=name=NAME names it)", e.InitialCluster, e.Name, e.PeerURL))
	}
	for flag, text := range map[string]string{"initial-advertise-peer-urls": e.PeerURL, "listen-client-urls": e.ClientURL} {
		if u, err := url.Parse(text); text != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
			errs = append(errs, fmt.Errorf("--etcd-arg=%s=%s: want a URL such as https://10.0.0.1:2380", flag, text))
		}
	}
	return errors.Join(errs...)
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
