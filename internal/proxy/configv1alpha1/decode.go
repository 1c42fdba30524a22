package configv1alpha1

import (
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// Decode reads a configuration in YAML or JSON, without defaults. Fields that are
// unknown or there twice are errors.
func Decode(data []byte) (*KubeProxyConfiguration, error) {
	c := &KubeProxyConfiguration{}
	if err := yaml.UnmarshalStrict(data, c); err != nil {
		return nil, err
	}
	if c.APIVersion != APIVersion || c.Kind != Kind {
		return nil, fmt.Errorf("want apiVersion: %s and kind: %s, got %q and %q", APIVersion, Kind, c.APIVersion, c.Kind)
	}
	return c, nil
}

// Defaults returns the configuration of an empty file.
func Defaults() *KubeProxyConfiguration {
	c := &KubeProxyConfiguration{
		TypeMeta:           metav1.TypeMeta{APIVersion: APIVersion, Kind: Kind},
		BindAddress:        "0.0.0.0",
		HealthzBindAddress: "0.0.0.0:10256",
		MetricsBindAddress: "127.0.0.1:10249",
		Mode:               ModeNFTables,
		DetectLocalMode:    LocalModeClusterCIDR,
		NodePortAddresses:  []string{"primary"},
		OOMScoreAdj:        new(int32(-999)),
		Conntrack: Conntrack{
			MaxPerCore: new(int32(32 << 10)), Min: new(int32(128 << 10)),
			TCPEstablishedTimeout: &metav1.Duration{Duration: 24 * time.Hour}, TCPCloseWaitTimeout: &metav1.Duration{Duration: time.Hour},
		},
		ConfigSyncPeriod: metav1.Duration{Duration: 15 * time.Minute},
	}
	c.ClientConnection.ContentType, c.ClientConnection.QPS, c.ClientConnection.Burst = runtime.ContentTypeProtobuf, 5, 10
	sync, minSync := metav1.Duration{Duration: 30 * time.Second}, metav1.Duration{Duration: time.Second}
	c.IPTables = IPTables{MasqueradeBit: new(int32(14)), LocalhostNodePorts: new(true), SNATNodeInternalIP: new(false), SyncPeriod: sync, MinSyncPeriod: minSync}
	c.NFTables = NFTables{MasqueradeBit: new(int32(14)), SyncPeriod: sync, MinSyncPeriod: minSync}
	c.IPVS.SyncPeriod = sync
	return c
}

// Fill sets the fields that are zero to those of defaults, which it may share. The
// default addresses to listen on are of the family of the bind address.
func (c *KubeProxyConfiguration) Fill(defaults *KubeProxyConfiguration) {
	own := *defaults
	if a, err := netip.ParseAddr(c.BindAddress); err == nil && a.Is6() {
		inIPv6 := strings.NewReplacer("0.0.0.0:", "[::]:", "127.0.0.1:", "[::1]:")
		own.HealthzBindAddress, own.MetricsBindAddress = inIPv6.Replace(own.HealthzBindAddress), inIPv6.Replace(own.MetricsBindAddress)
	}
	fill(reflect.ValueOf(c).Elem(), reflect.ValueOf(&own).Elem())
}

// fill sets the fields of a struct that are zero to those of another one.
func fill(to, from reflect.Value) {
	for i := range to.NumField() {
		field := to.Field(i)
		switch {
		case !field.CanSet():
		case field.Kind() == reflect.Struct:
			fill(field, from.Field(i))
		case field.IsZero():
			field.Set(from.Field(i))
		}
	}
}

// Encode returns the configuration as YAML.
func Encode(c *KubeProxyConfiguration) ([]byte, error) {
	out := *c
	out.APIVersion, out.Kind = APIVersion, Kind
	return yaml.Marshal(out)
}
