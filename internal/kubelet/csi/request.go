package csi

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"time"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// fsType returns the type of the volume's file system, "" if it is left to the
// driver.
func (m *mount) fsType() string {
	if m.source.PV != nil {
		return m.source.PV.Spec.CSI.FSType
	}
	if t := m.source.Volume.CSI.FSType; t != nil {
		return *t
	}
	return ""
}

// capability returns how the volume is to be mounted.
func (m *mount) capability() *csipb.VolumeCapability {
	if m.source.block() {
		return &csipb.VolumeCapability{
			AccessMode: &csipb.VolumeCapability_AccessMode{Mode: m.accessMode()},
			AccessType: &csipb.VolumeCapability_Block{Block: &csipb.VolumeCapability_BlockVolume{}},
		}
	}
	as := &csipb.VolumeCapability_MountVolume{FsType: m.fsType()}
	if m.source.PV != nil {
		as.MountFlags = m.source.PV.Spec.MountOptions
	}
	if sc := m.pod.Spec.SecurityContext; sc != nil && sc.FSGroup != nil && m.capabilities[csipb.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP] {
		as.VolumeMountGroup = strconv.FormatInt(*sc.FSGroup, 10)
	}
	return &csipb.VolumeCapability{
		AccessMode: &csipb.VolumeCapability_AccessMode{Mode: m.accessMode()},
		AccessType: &csipb.VolumeCapability_Mount{Mount: as},
	}
}

// accessMode returns the access mode of the volume in the terms of CSI. Only
// drivers with the capability SINGLE_NODE_MULTI_WRITER get the modes that
// distinguish single and multiple writers.
func (m *mount) accessMode() csipb.VolumeCapability_AccessMode_Mode {
	mode := v1.ReadWriteOnce
	if m.source.PV != nil && len(m.source.PV.Spec.AccessModes) > 0 {
		mode = m.source.PV.Spec.AccessModes[0]
	}
	counts := m.capabilities[csipb.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER]
	switch {
	case mode == v1.ReadOnlyMany:
		return csipb.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY
	case mode == v1.ReadWriteMany:
		return csipb.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
	case mode == v1.ReadWriteOnce && counts:
		return csipb.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER
	case mode == v1.ReadWriteOncePod && counts:
		return csipb.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER
	}
	return csipb.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
}

// secrets reads the secret that a field refers to, for the driver. No reference
// is no secret.
func (m *mount) secrets(ctx context.Context, field string, ref *v1.SecretReference) (map[string]string, error) {
	if ref == nil || ref.Name == "" {
		return nil, nil
	}
	secret, err := m.volumes.Secret(ctx, ref.Namespace, ref.Name)
	if err != nil {
		return nil, fmt.Errorf("fetching %s %s/%s failed: %w", field, ref.Namespace, ref.Name, err)
	}
	out := make(map[string]string, len(secret.Data))
	for name, value := range secret.Data {
		out[name] = string(value)
	}
	return out, nil
}

// Keys of the attributes that describe pods to drivers.
const (
	prefix    = "csi.storage.k8s.io/"
	tokensKey = prefix + "serviceAccount.tokens"
)

// describePod adds what the driver asks for about the pod: its names, and tokens
// of its service account, which are in the attributes or in the secrets.
func (m *mount) describePod(ctx context.Context, attributes map[string]string, secrets *map[string]string) error {
	if m.object == nil {
		return nil
	}
	spec := &m.object.Spec
	if spec.PodInfoOnMount != nil && *spec.PodInfoOnMount {
		attributes[prefix+"pod.name"] = m.pod.Name
		attributes[prefix+"pod.namespace"] = m.pod.Namespace
		attributes[prefix+"pod.uid"] = string(m.pod.UID)
		attributes[prefix+"serviceAccount.name"] = m.pod.Spec.ServiceAccountName
		attributes[prefix+"ephemeral"] = strconv.FormatBool(m.source.PV == nil)
	}
	if len(spec.TokenRequests) == 0 {
		return nil
	}
	type token struct {
		Token   string    `json:"token"`
		Expires time.Time `json:"expirationTimestamp"`
	}
	tokens := make(map[string]token, len(spec.TokenRequests))
	for _, request := range spec.TokenRequests {
		value, expires, err := m.volumes.Token(ctx, m.pod, request.Audience, ptr.Deref(request.ExpirationSeconds, int64(time.Hour/time.Second)))
		if err != nil {
			return err
		}
		tokens[request.Audience] = token{value, expires.UTC()}
	}
	raw, err := json.Marshal(tokens)
	if err != nil {
		return err
	}
	if spec.ServiceAccountTokenInSecrets == nil || !*spec.ServiceAccountTokenInSecrets {
		attributes[tokensKey] = string(raw)
		return nil
	}
	with := maps.Clone(*secrets)
	if with == nil {
		with = make(map[string]string, 1)
	}
	with[tokensKey] = string(raw)
	*secrets = with
	return nil
}
