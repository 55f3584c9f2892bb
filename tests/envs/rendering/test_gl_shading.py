"""The ray tracer with the shading of MuJoCo's OpenGL, and the groups of geoms that are drawn."""

import mujoco
import numpy as np
import pytest

from rrf.envs.rendering import warp_renderer
from rrf.envs.rendering.renderers import make_renderer, probe_renderer

# Everything is lit by ambient light alone, so colours are those of the materials.
AMBIENT = """
<mujoco>
  <visual><headlight ambient="1 1 1" diffuse="0 0 0" specular="0 0 0"/></visual>
  <asset>{assets}</asset>
  <worldbody><camera name="top" pos="0 0 4" fovy="40"/>{geoms}</worldbody>
</mujoco>
"""
# One of each: kinds of geoms, of textures and of lights, a see-through geom, a moving one.
EVERYTHING = """
<mujoco>
  <asset>
    <texture name="sky" type="skybox" builtin="gradient" rgb1=".3 .5 .7" rgb2="0 0 .2" width="64" height="384"/>
    <texture name="checks" type="2d" builtin="checker" width="64" height="64" rgb1=".9 .8 .7" rgb2=".2 .3 .4"/>
    <texture name="cube" type="cube" builtin="gradient" width="32" height="192" rgb1=".9 .2 .2" rgb2=".2 .2 .9"/>
    <material name="floor" texture="checks" texrepeat="3 2"/>
    <material name="uniform" texture="checks" texrepeat="4 4" texuniform="true" specular=".8" shininess=".7"/>
    <material name="cube" texture="cube" rgba="1 .9 .8 1"/>
    <material name="glow" rgba=".2 .6 .2 1" emission=".5"/>
    <mesh name="gem" vertex="1 0 0 -1 0 0 0 1 0 0 -1 0 0 0 1 0 0 -1" scale=".3 .3 .5"/>
  </asset>
  <worldbody>
    <light pos="1 -1 3" dir="-.3 .3 -1" diffuse=".9 .9 .8" castshadow="false"/>
    <light pos="-2 -2 3" dir=".5 .5 -1" mode="fixed" cutoff="30" exponent="5" castshadow="false" diffuse=".5 .4 .9"/>
    <light type="directional" dir="0 1 -1" castshadow="false" diffuse=".3 .3 .3" ambient=".1 .1 .1"/>
    <geom type="plane" size="2 1.5 .1" material="floor"/>
    <geom type="box" pos="-.8 .3 .4" euler="10 20 30" size=".3 .2 .3" material="cube"/>
    <geom type="box" pos=".8 .6 .2" euler="0 0 20" size=".4 .2 .2" material="uniform"/>
    <geom type="sphere" pos="0 .7 .3" size=".3" material="cube"/>
    <geom type="cylinder" pos="-.3 -.6 .3" euler="60 0 0" size=".2 .3" material="uniform"/>
    <geom type="capsule" pos=".5 -.6 .4" euler="0 70 0" size=".15 .3" rgba=".8 .3 .6 1"/>
    <geom type="ellipsoid" pos="1.3 -.4 .3" size=".3 .2 .3" material="glow"/>
    <geom type="box" pos="0 -1 .4" size="1 .02 .3" rgba=".2 .8 .9 .3"/>
    <body pos="-1.2 -.4 .5">
      <joint axis="0 0 1"/>
      <geom type="mesh" mesh="gem" material="cube"/>
      <camera name="hand" pos="0 -1.5 .8" xyaxes="1 0 0 0 .5 1"/>
    </body>
    <camera name="front" pos="0 -4 2.2" xyaxes="1 0 0 0 .5 1" fovy="45"/>
  </worldbody>
</mujoco>
"""  # noqa: E501


def draw(renderer, spec, cameras=("top",), size=(32, 32), **options):
    spec = mujoco.MjSpec.from_string(spec) if isinstance(spec, str) else spec
    model = spec.compile()
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    made = make_renderer(renderer, spec, model, list(cameras), size, **options)
    images = made.render([data])
    made.close()
    return images


def shaded(geoms, assets=""):
    """uint8 [32, 32, 3] from above; +y is up."""
    scene = AMBIENT.format(geoms=geoms, assets=assets)
    return draw("warp", scene, use_gl_shading=True)[0, 0].astype(int)


def test_the_caller_chooses_the_groups_that_are_drawn():
    scene = AMBIENT.format(
        assets="",
        geoms='<geom type="box" size=".5 .5 .5" rgba="1 0 0 1" group="0"/>'
        '<geom type="box" size=".3 .3 .3" rgba="0 1 0 1" group="1"/>'
        '<site pos="1 0 0" size=".3" rgba="0 0 1 1"/>',
    )
    ways = [("warp", {}), ("warp", {"use_gl_shading": True})]
    ways += [("egl", {})] if probe_renderer("egl") == "ok" else []
    for renderer, options in ways:
        image = draw(renderer, scene, **options)[0, 0]
        assert image[16, 16].tolist() == [255, 0, 0]
        image = draw(renderer, scene, geom_groups=[1], **options)[0, 0]
        assert image[16, 16].tolist() == [0, 255, 0]
        assert image[16, 26, 2] > 200  # sites are drawn whatever the groups of geoms
    for groups in ([], [6]):
        with pytest.raises(ValueError, match=r"geom_groups is .*, allowed: one or more of 0 to 5"):
            draw("warp", scene, geom_groups=groups)


def test_the_lit_colour_is_clamped_before_it_is_multiplied_by_the_texture():
    grey = '<texture name="t" type="2d" builtin="flat" rgb1=".5 .5 .5" width="4" height="4"/>'
    light = '<light type="directional" dir="0 0 -1" diffuse="1 1 1" specular="0 0 0"/>'
    image = shaded(
        '<geom type="plane" size="1 1 1" material="m"/>' + light,
        grey + '<material name="m" texture="t"/>',
    )
    assert image[16, 16].tolist() == [127, 127, 127]  # light 2, clamped to 1, times 127


def test_a_square_texture_lies_on_a_box_with_its_first_row_towards_y():
    spec = mujoco.MjSpec.from_string(
        AMBIENT.format(assets="", geoms='<geom name="g" type="box" size="1 .5 .1"/>')
    )
    colors = [[255, 0, 0], [0, 255, 0], [0, 0, 255], [255, 255, 255]]
    spec.add_texture(
        name="t",
        type=mujoco.mjtTexture.mjTEXTURE_2D,
        width=2,
        height=2,
        nchannel=3,
        data=np.ravel(colors).tolist(),
    )
    material = spec.add_material(name="m")
    material.textures[mujoco.mjtTextureRole.mjTEXROLE_RGB] = "t"
    spec.geom("g").material = "m"
    image = draw("warp", spec, size=(64, 64), use_gl_shading=True)[0, 0].astype(int)
    left, right = 21, 42  # x = -.5 and .5, the middle of a texel
    upper, lower = 26, 37  # y = .25 and -.25
    seen = [image[upper, left], image[upper, right], image[lower, left], image[lower, right]]
    np.testing.assert_allclose(seen, colors, atol=40)  # linear between texels


def test_a_cube_texture_is_on_each_side_of_a_box():
    cube = (
        '<texture name="t" type="cube" builtin="flat" rgb1="1 0 0" rgb2="0 0 1" width="8"'
        ' height="48"/><material name="m" texture="t"/>'
    )
    box = '<geom type="box" size=".5 .5 .5" material="m" {}/>'
    assert shaded(box.format(""), cube)[16, 16].tolist() == [255, 0, 0]
    turned = shaded(box.format('euler="-90 0 0"'), cube)
    assert turned[16, 16].tolist() == [0, 0, 255]  # "flat" gives the side at -y its second colour


def test_a_see_through_geom_is_blended_twice():
    red = '<geom type="box" size="1 1 .1" rgba="1 0 0 1"/>'
    pane = '<geom type="box" pos="0 0 1" size="1 1 .1" rgba="0 1 0 .5"/>'
    assert shaded(red + pane)[16, 16].tolist() == [64, 191, 0]  # a quarter of what is behind it


def test_the_first_geom_that_reflects_adds_what_it_mirrors():
    """At half its brightness. The camera looks down on a mirror; a red pane is behind it."""
    floor = '<geom type="plane" size="2 2 1" rgba="0 .2 0 1" material="m"/>'
    pane = '<geom type="box" pos="0 0 6" size="4 4 .1" rgba="1 0 0 1"/>'
    for reflectance, red in ((0.5, 128), (0.0, 0)):
        image = shaded(floor + pane, f'<material name="m" reflectance="{reflectance}"/>')
        assert image[16, 16].tolist() == [red, 51, 0]


def test_faces_behind_a_back_face_of_the_same_mesh_are_seen():
    """Two tetrahedra in one mesh, the camera inside the first."""
    spec = mujoco.MjSpec.from_string(AMBIENT.format(assets="", geoms=""))
    corners = np.array([[1, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]], float)
    faces = np.array([[0, 1, 2], [0, 3, 1], [0, 2, 3], [1, 3, 2]])
    both = np.concatenate([corners + np.array([0, 0, 4]), 2 * corners - np.array([0, 0, 2])])
    mesh = spec.add_mesh(name="two", inertia=mujoco.mjtMeshInertia.mjMESH_INERTIA_SHELL)
    mesh.uservert, mesh.userface = both.ravel(), np.concatenate([faces, faces + 4]).ravel()
    spec.worldbody.add_geom(
        type=mujoco.mjtGeom.mjGEOM_MESH, meshname="two", rgba=[1, 0, 0, 1], contype=0
    )
    image = draw("warp", spec, use_gl_shading=True)[0, 0]
    assert image[16, 16].tolist() == [255, 0, 0]


def test_shadows_are_refused():
    spec = mujoco.MjSpec.from_string(EVERYTHING)
    with pytest.raises(ValueError, match="use_gl_shading=True draws no shadows"):
        warp_renderer.WarpRenderer(
            spec, spec.compile(), ["front"], (16, 16), use_shadows=True, use_gl_shading=True
        )


def test_what_is_kept_of_the_background_and_the_batch_do_not_show(monkeypatch):
    spec = mujoco.MjSpec.from_string(EVERYTHING.replace('rgba=".2 .8 .9 .3"', ""))
    model = spec.compile()
    datas = [mujoco.MjData(model) for _ in range(3)]
    for number, data in enumerate(datas):
        data.qpos[0] = number
        mujoco.mj_forward(model, data)
    drawing = ("warp", spec, model, ["hand", "front"], (48, 48))
    layered = make_renderer(*drawing, max_batch=2, use_gl_shading=True).render(datas)
    monkeypatch.setattr(warp_renderer, "_with_layers", lambda *_: [])
    whole = make_renderer(*drawing, max_batch=8, use_gl_shading=True).render(datas)
    np.testing.assert_array_equal(layered, whole)
    assert len({image.tobytes() for image in layered[1]}) == 3


@pytest.mark.parametrize("backend", ["egl", "osmesa"])
def test_a_scene_with_everything_looks_as_in_opengl(backend):
    """Mean absolute difference of a pixel; what remains are edges, and light per vertex."""
    if (reason := probe_renderer(backend)) != "ok":
        pytest.skip(f"{backend}: {reason}")
    images = {
        name: draw(name, EVERYTHING, ["front", "hand"], (96, 128), **options)[:, 0].astype(float)
        for name, options in {"warp": {"use_gl_shading": True}, backend: {}}.items()
    }
    off = np.abs(images["warp"] - images[backend]).mean((1, 2, 3))
    assert off.max() < 3, off
