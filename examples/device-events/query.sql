SELECT device, camera, fps, city, floor, "at" FROM devices.cameras ORDER BY device, camera;
