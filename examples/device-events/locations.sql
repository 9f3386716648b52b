SELECT device, city, floor FROM geo.locations ORDER BY device;
