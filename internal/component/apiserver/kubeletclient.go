package apiserver

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"github.com/coracle-io/coracle/internal/apiserver/connect"
	"github.com/coracle-io/coracle/internal/apiserver/metricsserver"
	"github.com/coracle-io/coracle/internal/apiserver/objects"
	"github.com/coracle-io/coracle/internal/component/base"
	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/flagvalue"
	"github.com/coracle-io/coracle/internal/pki"
)

// KubeletClientOptions say how the API server reaches kubelets.
type KubeletClientOptions struct {
	CAFile   string
	CertFile string
	KeyFile  string
	// AddressTypes are the types of node addresses to try, in order.
	AddressTypes []string
	// Local returns what answers for the kubelets of simulated nodes
	// (connect.Config). It has no flag.
	Local func(node string) http.RoundTripper
}

func newKubeletClientOptions() KubeletClientOptions {
	return KubeletClientOptions{AddressTypes: []string{"InternalIP", "Hostname", "InternalDNS", "ExternalDNS", "ExternalIP"}}
}

func (o *KubeletClientOptions) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.CAFile, "kubelet-certificate-authority", o.CAFile, "authority of the kubelets' serving certificates; without it they are not verified, because kubelets sign their own by default")
	fs.StringVar(&o.CertFile, "kubelet-client-certificate", o.CertFile, "client certificate for kubelets; the default is one signed by the cluster's authority")
	fs.StringVar(&o.KeyFile, "kubelet-client-key", o.KeyFile, "key of --kubelet-client-certificate")
	fs.StringSliceVar(&o.AddressTypes, "kubelet-preferred-address-types", o.AddressTypes, "types of a node's addresses, the one to reach its kubelet by first")
	flagvalue.Is(fs, flagvalue.File, "kubelet-certificate-authority", "kubelet-client-certificate", "kubelet-client-key")
}

func (o *KubeletClientOptions) validate() []error {
	var errs []error
	if (o.CertFile == "") != (o.KeyFile == "") {
		errs = append(errs, errors.New("--kubelet-client-certificate and --kubelet-client-key go together: give both or neither"))
	}
	all := newKubeletClientOptions().AddressTypes
	for _, kind := range o.AddressTypes {
		if !slices.Contains(all, kind) {
			errs = append(errs, fmt.Errorf("--kubelet-preferred-address-types=%s: want any of %s", kind, strings.Join(all, ", ")))
		}
	}
	return errs
}

// newConnector returns the connector to kubelets. It refuses to connect to
// addresses for which own returns true.
func (o *KubeletClientOptions) newConnector(keys *pki.Directory, source objects.Source, features *feature.Set, own func(netip.AddrPort) bool) (*connect.Connector, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: o.CAFile == ""} //nolint:gosec // as upstream: kubelets sign their own certificates unless told otherwise
	if o.CAFile != "" {
		pool, err := base.ReadAuthorities("kubelet-certificate-authority", o.CAFile)
		if err != nil {
			return nil, err
		}
		config.RootCAs = pool
	}
	if o.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(o.CertFile, o.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("--kubelet-client-certificate: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	} else {
		own, err := keys.Issue(pki.APIServerKubeletClient())
		if err != nil {
			return nil, err
		}
		config.GetClientCertificate = own.GetClientCertificate
	}
	return connect.New(connect.Config{KubeletTLS: config, AddressTypes: addressTypes(o.AddressTypes), Objects: source, Features: features, Own: own, Local: o.Local}), nil
}

func addressTypes(names []string) []corev1.NodeAddressType {
	types := make([]corev1.NodeAddressType, len(names))
	for i, name := range names {
		types[i] = corev1.NodeAddressType(name)
	}
	return types
}

// newMetricsServer returns what measures nodes and pods for metrics.k8s.io. It
// asks nodes only while this server serves the group.
func (a *Server) newMetricsServer(connector *connect.Connector) *metricsserver.Server {
	gv := metricsv1beta1.SchemeGroupVersion
	_, served := a.apis.versions[gv]
	return metricsserver.New(metricsserver.Config{
		Objects: a.storage.objects(), Ask: connector.GetFromKubelet,
		Serves: func() bool { return served && a.extensions.aggregated.Handler(gv) == nil },
	})
}
