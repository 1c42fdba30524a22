package nodevolumelimits

import (
	"errors"
	"fmt"
	"path"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/component-helpers/storage/ephemeral"
	"k8s.io/component-helpers/storage/volume"

	"github.com/coracle-io/coracle/internal/csimigration"
	"github.com/coracle-io/coracle/internal/podquery"
)

// volumeID identifies a volume: pods that name the same one share it.
type volumeID struct{ driver, handle string }

// attachable is a volume of a pod that a CSI driver attaches or mounts.
type attachable struct {
	id volumeID
	// plugin is the in-tree plugin that the driver took the place of; "" if the
	// volume names the driver.
	plugin string
	// isLocal: the volume lives and ends with the pod, and is never attached.
	isLocal bool
}

// counts reports whether the volume takes part in the limits of a node. A
// volume of an in-tree plugin does if the node has migrated the plugin.
func (a *attachable) counts(csiNode *storagev1.CSINode) bool {
	if a.plugin == "" {
		return !a.isLocal
	}
	return csimigration.IsMigrated(csiNode, a.plugin)
}

// attachables returns the volumes of a pod that drivers attach. Claims that
// cannot be found are an error only if the pod isNew; a pod on a node may have
// lost them.
func (p *plugin) attachables(pod *v1.Pod, isNew bool) (found []attachable, err error) {
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.CSI != nil {
			found = append(found, attachable{id: volumeID{driver: v.CSI.Driver}, isLocal: true})
			continue
		}
		if v.PersistentVolumeClaim == nil && v.Ephemeral == nil {
			if a, ok := ofInline(v); ok {
				found = append(found, a)
			}
			continue
		}
		name, isEphemeral := podquery.ClaimName(pod, v)
		if name == "" {
			return nil, errors.New("PersistentVolumeClaim had no name")
		}
		claim, err := p.claims.PersistentVolumeClaims(pod.Namespace).Get(name)
		if err != nil {
			if isNew {
				return nil, fmt.Errorf("looking up PVC %s/%s: %w", pod.Namespace, name, err)
			}
			continue
		}
		if isEphemeral {
			if err := ephemeral.VolumeIsForPod(pod, claim); err != nil {
				if isNew {
					return nil, err
				}
				continue
			}
		}
		if a, ok := p.ofClaim(claim); ok {
			found = append(found, a)
		}
	}
	return found, nil
}

// ofClaim returns the volume of a claim. A volume that is still to be
// provisioned counts for the provisioner of its class.
func (p *plugin) ofClaim(claim *v1.PersistentVolumeClaim) (attachable, bool) {
	if claim.Spec.VolumeName != "" {
		if pv, err := p.volumes.Get(claim.Spec.VolumeName); err == nil {
			return ofVolume(pv)
		}
	}
	name := volume.GetPersistentVolumeClaimClass(claim)
	if name == "" {
		return attachable{}, false
	}
	class, err := p.classes.Get(name)
	if err != nil || class.Provisioner == volume.NotSupportedProvisioner {
		return attachable{}, false
	}
	// No handle of a driver contains a space, so that this one differs from all
	// of them.
	a := attachable{id: volumeID{class.Provisioner, "claim " + claim.Namespace + "/" + claim.Name}}
	if driver := csimigration.Driver(class.Provisioner); driver != "" {
		a.plugin, a.id.driver = class.Provisioner, driver
	}
	return a, true
}

// ofVolume returns a PersistentVolume if a CSI driver serves it.
func ofVolume(pv *v1.PersistentVolume) (attachable, bool) {
	s := &pv.Spec.PersistentVolumeSource
	if s.CSI != nil {
		return attachable{id: volumeID{s.CSI.Driver, s.CSI.VolumeHandle}}, s.CSI.Driver != "" && s.CSI.VolumeHandle != ""
	}
	inline := v1.VolumeSource{
		AWSElasticBlockStore: s.AWSElasticBlockStore, GCEPersistentDisk: s.GCEPersistentDisk, AzureDisk: s.AzureDisk,
		VsphereVolume: s.VsphereVolume, PortworxVolume: s.PortworxVolume,
	}
	if s.Cinder != nil {
		inline.Cinder = &v1.CinderVolumeSource{VolumeID: s.Cinder.VolumeID}
	}
	if s.AzureFile != nil {
		inline.AzureFile = &v1.AzureFileVolumeSource{SecretName: s.AzureFile.SecretName, ShareName: s.AzureFile.ShareName}
	}
	return ofInline(&v1.Volume{VolumeSource: inline})
}

// ofInline returns a volume of an in-tree plugin that a CSI driver serves.
func ofInline(v *v1.Volume) (attachable, bool) {
	of := func(plugin, handle string) (attachable, bool) {
		return attachable{id: volumeID{csimigration.Driver(plugin), handle}, plugin: plugin}, true
	}
	switch {
	case v.AWSElasticBlockStore != nil: // "vol-1" or "aws://us-east-1a/vol-1"
		return of(csimigration.AWSEBS, path.Base(v.AWSElasticBlockStore.VolumeID))
	case v.GCEPersistentDisk != nil:
		return of(csimigration.GCEPD, v.GCEPersistentDisk.PDName)
	case v.AzureDisk != nil:
		return of(csimigration.AzureDisk, v.AzureDisk.DataDiskURI)
	case v.AzureFile != nil:
		return of(csimigration.AzureFile, v.AzureFile.SecretName+"#"+v.AzureFile.ShareName)
	case v.Cinder != nil:
		return of(csimigration.Cinder, v.Cinder.VolumeID)
	case v.VsphereVolume != nil:
		return of(csimigration.VsphereVolume, v.VsphereVolume.VolumePath)
	case v.PortworxVolume != nil:
		return of(csimigration.PortworxVolume, v.PortworxVolume.VolumeID)
	}
	return attachable{}, false
}
