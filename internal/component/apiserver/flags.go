package apiserver

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/server/options"

	"github.com/coracle-io/coracle/internal/apiserver/admission"
	"github.com/coracle-io/coracle/internal/apiserver/authz"
	"github.com/coracle-io/coracle/internal/component/base"
	"github.com/coracle-io/coracle/internal/feature"
	"github.com/coracle-io/coracle/internal/resource/all"
	"github.com/coracle-io/coracle/internal/resource/preview"
)

// Flags are the flags of the API server.
type Flags struct {
	BindAddress      net.IP
	AdvertiseAddress net.IP
	// AdvertiseLoopback advertises 127.0.0.1 where the machine has no other
	// address: whoever uses the server is there as well. It has no flag.
	AdvertiseLoopback bool
	ExternalHostname  string
	SecurePort        int
	// FreePort allows SecurePort to be 0, which is a free port. It has no flag.
	FreePort        bool
	CertDir         string
	TLSCertFile     string
	TLSKeyFile      string
	TLS             TLSFlags
	FrontProxy      FrontProxyFlags
	ClientCAFile    string
	KubeletCAFile   string
	KubeletCertFile string
	KubeletKeyFile  string
	// KubeletAddressTypes is the order in which addresses of nodes are preferred.
	KubeletAddressTypes []string

	EtcdServers  []string
	EtcdCAFile   string
	EtcdCertFile string
	EtcdKeyFile  string

	Storage StorageFlags

	ServiceClusterIPRange string
	ServiceNodePortRange  utilnet.PortRange

	Authentication    AuthenticationFlags
	AuthorizationMode []string
	Authorization     AuthorizationFlags
	AnonymousAuth     bool
	TokenAuthFile     string
	BootstrapTokens   bool

	// Audit says which requests are recorded, where and how.
	Audit *options.AuditOptions

	EnableAdmission     []string
	DisableAdmission    []string
	AdmissionConfigFile string

	ServiceAccounts ServiceAccountFlags

	AllowPrivileged     bool
	Requests            RequestFlags
	MaxRequestsInFlight int
	MaxMutatingInFlight int
	PriorityAndFairness bool
	RequestTimeout      time.Duration
	GoawayChance        float64
	EventTTL            time.Duration
	RuntimeConfig       []string
	FeatureGates        []string
	EncryptionConfig    string
	EndpointReconciler  string
	Profiling           bool
	ContentionProfiling bool
	Ignored             IgnoredFlags
	// Components are where the other parts of the control plane say how they
	// are, by name. It has no flag.
	Components map[string]string
}

// NewFlags returns upstream's defaults.
func NewFlags() *Flags {
	return &Flags{
		BindAddress:           net.IPv4zero,
		SecurePort:            6443,
		CertDir:               "/var/run/kubernetes",
		ServiceClusterIPRange: "10.0.0.0/24",
		ServiceNodePortRange:  utilnet.PortRange{Base: 30000, Size: 2768},
		AuthorizationMode:     []string{authz.ModeNode, authz.ModeRBAC},
		Storage:               newStorageFlags(),
		Requests:              newRequestFlags(),
		FrontProxy:            newFrontProxyFlags(),
		Ignored:               newIgnoredFlags(),
		KubeletAddressTypes:   []string{"InternalIP", "Hostname", "InternalDNS", "ExternalDNS", "ExternalIP"},
		Authentication:        newAuthenticationFlags(),
		Authorization:         newAuthorizationFlags(),
		AnonymousAuth:         true,
		BootstrapTokens:       true,
		ServiceAccounts:       newServiceAccountFlags(),
		Audit:                 options.NewAuditOptions(),
		AllowPrivileged:       true,
		MaxRequestsInFlight:   400,
		MaxMutatingInFlight:   200,
		PriorityAndFairness:   true,
		RequestTimeout:        time.Minute,
		EventTTL:              time.Hour,
		EndpointReconciler:    "lease",
		Profiling:             true,
		Components:            map[string]string{"controller-manager": "127.0.0.1:10257", "scheduler": "127.0.0.1:10259"},
	}
}

// AddFlags binds the flags.
func (f *Flags) AddFlags(fs *pflag.FlagSet) {
	fs.IPVar(&f.BindAddress, "bind-address", f.BindAddress, "address to listen on")
	fs.IPVar(&f.AdvertiseAddress, "advertise-address", f.AdvertiseAddress, "address of this server as members of the cluster see it; the default is the bind address, or that of the default route")
	fs.StringVar(&f.ExternalHostname, "external-hostname", f.ExternalHostname, "host, with or without a port, in URLs that are meant for others, such as that of the token keys; the default is the advertised address")
	fs.IntVar(&f.SecurePort, "secure-port", f.SecurePort, "port to serve HTTPS on")
	fs.StringVar(&f.CertDir, "cert-dir", f.CertDir, "directory of the keys, certificates and kubeconfigs of the components, made where missing")
	fs.StringVar(&f.TLSCertFile, "tls-cert-file", f.TLSCertFile, "serving certificate; the default is one of the cluster's own authority")
	fs.StringVar(&f.TLSKeyFile, "tls-private-key-file", f.TLSKeyFile, "key of --tls-cert-file")
	f.TLS.addFlags(fs)
	f.FrontProxy.addFlags(fs)
	fs.StringVar(&f.ClientCAFile, "client-ca-file", f.ClientCAFile, "authority of client certificates; the default is the cluster's own")
	fs.StringVar(&f.KubeletCAFile, "kubelet-certificate-authority", f.KubeletCAFile, "authority of the kubelets' serving certificates; none leaves them unchecked, for kubelets sign their own unless told otherwise")
	fs.StringVar(&f.KubeletCertFile, "kubelet-client-certificate", f.KubeletCertFile, "certificate to show to kubelets; the default is one of the cluster's own authority")
	fs.StringVar(&f.KubeletKeyFile, "kubelet-client-key", f.KubeletKeyFile, "key of --kubelet-client-certificate")
	fs.StringSliceVar(&f.KubeletAddressTypes, "kubelet-preferred-address-types", f.KubeletAddressTypes, "types of a node's addresses, the one to reach its kubelet by first")
	fs.StringSliceVar(&f.EtcdServers, "etcd-servers", f.EtcdServers, "URLs of an external etcd cluster")
	fs.StringVar(&f.EtcdCAFile, "etcd-cafile", f.EtcdCAFile, "authority of the etcd servers' certificates")
	fs.StringVar(&f.EtcdCertFile, "etcd-certfile", f.EtcdCertFile, "client certificate for etcd")
	fs.StringVar(&f.EtcdKeyFile, "etcd-keyfile", f.EtcdKeyFile, "key of --etcd-certfile")
	f.Storage.addFlags(fs)
	fs.StringVar(&f.ServiceClusterIPRange, "service-cluster-ip-range", f.ServiceClusterIPRange, "range of the Services' cluster IPs; two, separated by a comma, for dual stack")
	fs.Var(&f.ServiceNodePortRange, "service-node-port-range", "ports for Services of type NodePort")
	fs.StringSliceVar(&f.AuthorizationMode, "authorization-mode", f.AuthorizationMode, "authorizers in order: "+strings.Join(authz.Modes, ", "))
	f.Authorization.addFlags(fs)
	f.Authentication.addFlags(fs)
	fs.BoolVar(&f.AnonymousAuth, "anonymous-auth", f.AnonymousAuth, "let requests without credentials through as system:anonymous")
	fs.StringVar(&f.TokenAuthFile, "token-auth-file", f.TokenAuthFile, "CSV file of static tokens")
	fs.BoolVar(&f.BootstrapTokens, "enable-bootstrap-token-auth", f.BootstrapTokens, "accept the bootstrap tokens of kube-system")
	f.Audit.AddFlags(fs)
	fs.StringSliceVar(&f.EnableAdmission, "enable-admission-plugins", f.EnableAdmission, "admission plugins to run besides the default ones")
	fs.StringSliceVar(&f.DisableAdmission, "disable-admission-plugins", f.DisableAdmission, "default admission plugins not to run")
	fs.StringVar(&f.AdmissionConfigFile, "admission-control-config-file", f.AdmissionConfigFile, "AdmissionConfiguration; the plugin PodSecurity may have one")
	f.ServiceAccounts.addFlags(fs)
	fs.BoolVar(&f.AllowPrivileged, "allow-privileged", f.AllowPrivileged, "allow privileged containers")
	fs.BoolVar(&f.PriorityAndFairness, "enable-priority-and-fairness", f.PriorityAndFairness, "divide what --max-requests-inflight and --max-mutating-requests-inflight allow together by flow schemas and priority levels")
	fs.IntVar(&f.MaxRequestsInFlight, "max-requests-inflight", f.MaxRequestsInFlight, "most reading requests at a time; without priority and fairness, 0 is no limit")
	fs.IntVar(&f.MaxMutatingInFlight, "max-mutating-requests-inflight", f.MaxMutatingInFlight, "most writing requests at a time; without priority and fairness, 0 is no limit")
	f.Requests.addFlags(fs)
	fs.DurationVar(&f.RequestTimeout, "request-timeout", f.RequestTimeout, "how long a request other than a watch may take")
	fs.Float64Var(&f.GoawayChance, "goaway-chance", f.GoawayChance, "share of HTTP/2 requests after which clients are to connect anew, perhaps to another server behind a load balancer; from 0, which is none, to 0.02")
	fs.DurationVar(&f.EventTTL, "event-ttl", f.EventTTL, "how long events are kept")
	fs.StringSliceVar(&f.RuntimeConfig, "runtime-config", f.RuntimeConfig, "API groups and versions to turn on or off, as apps/v1=false")
	fs.StringSliceVar(&f.FeatureGates, "feature-gates", f.FeatureGates, "features to turn on or off, as Name=true")
	fs.StringVar(&f.EncryptionConfig, "encryption-provider-config", f.EncryptionConfig, "EncryptionConfiguration for what is stored")
	fs.Bool("encryption-provider-config-automatic-reload", true, "read --encryption-provider-config again when it changes, as is always done")
	fs.StringVar(&f.EndpointReconciler, "endpoint-reconciler-type", f.EndpointReconciler, "how the endpoints of the Service kubernetes are kept: lease, which every server renews, or none, which leaves them alone")
	f.Ignored.addFlags(fs)
	fs.BoolVar(&f.Profiling, "profiling", f.Profiling, "serve profiles at /debug/pprof/ to whoever may read that path")
	fs.BoolVar(&f.ContentionProfiling, "contention-profiling", f.ContentionProfiling, "record where goroutines wait for each other, for /debug/pprof/block, if --profiling is on")
}

// Validate reports everything that is wrong with the flags.
func (f *Flags) Validate() error {
	var errs []error
	if f.SecurePort < 0 || f.SecurePort > 65535 || f.SecurePort == 0 && !f.FreePort {
		errs = append(errs, fmt.Errorf("--secure-port=%d: want a port from 1 to 65535", f.SecurePort))
	}
	if _, err := f.ServiceRanges(); err != nil {
		errs = append(errs, err)
	}
	for _, server := range f.EtcdServers {
		if base.IsURL(server) != nil {
			errs = append(errs, fmt.Errorf("--etcd-servers=%s: want a URL such as https://10.0.0.1:2379", server))
		}
	}
	errs = append(errs, f.validateAuthorization()...)
	errs = append(errs, f.TLS.validate()...)
	errs = append(errs, f.Storage.validate()...)
	errs = append(errs, f.Requests.validate()...)
	errs = append(errs, f.FrontProxy.validate()...)
	errs = append(errs, f.Authentication.validate()...)
	errs = append(errs, f.ServiceAccounts.validate()...)
	errs = append(errs, f.Audit.Validate()...)
	gates, err := feature.Parse(f.FeatureGates)
	if err != nil {
		errs = append(errs, err)
	}
	if _, err := preview.Serve(all.All(), f.RuntimeConfig, gates); err != nil {
		errs = append(errs, err)
	}
	if (f.TLSCertFile == "") != (f.TLSKeyFile == "") {
		errs = append(errs, errors.New("--tls-cert-file and --tls-private-key-file go together: give both or neither"))
	}
	if (f.KubeletCertFile == "") != (f.KubeletKeyFile == "") {
		errs = append(errs, errors.New("--kubelet-client-certificate and --kubelet-client-key go together: give both or neither"))
	}
	if f.GoawayChance < 0 || f.GoawayChance > 0.02 {
		errs = append(errs, errors.New("--goaway-chance can not be less than 0 or greater than 0.02"))
	}
	for _, kind := range f.KubeletAddressTypes {
		if !slices.Contains(NewFlags().KubeletAddressTypes, kind) {
			errs = append(errs, fmt.Errorf("--kubelet-preferred-address-types=%s: want any of %s", kind, strings.Join(NewFlags().KubeletAddressTypes, ", ")))
		}
	}
	if f.EndpointReconciler != "lease" && f.EndpointReconciler != "none" {
		errs = append(errs, fmt.Errorf("--endpoint-reconciler-type=%s: want lease or none", f.EndpointReconciler))
	}
	if err := admission.Check(f.EnableAdmission, f.DisableAdmission); err != nil {
		errs = append(errs, err)
	}
	errs = append(errs, f.Ignored.validate()...)
	errs = append(errs, f.validateInFlight()...)
	return errors.Join(errs...)
}

// ServiceRanges parses --service-cluster-ip-range.
func (f *Flags) ServiceRanges() ([]*net.IPNet, error) {
	var ranges []*net.IPNet
	for _, s := range strings.Split(f.ServiceClusterIPRange, ",") {
		_, r, err := net.ParseCIDR(strings.TrimSpace(s))
		if err != nil {
			return nil, fmt.Errorf("--service-cluster-ip-range=%s: want a range such as 10.96.0.0/16, or two of different families", f.ServiceClusterIPRange)
		}
		ranges = append(ranges, r)
	}
	if len(ranges) > 2 {
		return nil, fmt.Errorf("--service-cluster-ip-range=%s: at most two ranges", f.ServiceClusterIPRange)
	}
	return ranges, nil
}
